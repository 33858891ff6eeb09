"""Stores of decisions, and the writer that fills them while experience is collected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.lanes import Lanes
from robo_rl.rl.progress.shaping import PotentialShaping


@runtime_checkable
class Store(Protocol):
    """Storage of decisions: a replay buffer, or the rollout of an on-policy learner, which also reads `u`."""

    def add(self, lanes: Lanes, values: Mapping[str, Tensor], gamma: float) -> None: ...
    def set_last_reward(self, lanes: Lanes, reward: float) -> None: ...


class DecisionWriter:
    """Writes finished decisions into stores.

    store: receives every decision; the loop changes it between phases. interventions: also receives decisions
    that a human took over. shaping: of the rewards; None: they are stored as they are.
    """

    def __init__(
        self,
        store: Store,
        gamma: float,
        interventions: Store | None = None,
        shaping: PotentialShaping | None = None,
    ) -> None:
        self.store, self.gamma, self.interventions, self.shaping = store, gamma, interventions, shaping

    def write(self, lanes: Lanes, values: Mapping[str, Tensor]) -> None:
        """Store one decision of each of these lanes."""
        if self.shaping is not None:
            values = dict(values) | {"reward": self.shaping.reward(values, self.gamma)}
        self.store.add(lanes, values, self.gamma)
        if self.interventions is None:
            return
        human = values["demo"] > 0
        if taken_over := lanes.where(human):
            # Only intervened steps are stored, so the next entry may not be the successor: cut after each.
            only = {name: lanes.rows(value, human) for name, value in values.items()}
            only["cut"] = torch.ones_like(only["cut"])
            self.interventions.add(taken_over, only, self.gamma)
