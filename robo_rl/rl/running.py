"""State of a collection between its control steps: running decisions, running episodes, learned reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.protocols import Rows
from robo_rl.core.shapes import Bool, Float, Int


@dataclass(frozen=True, slots=True)
class CollectedEpisode:
    """One finished episode."""

    seed: int
    success: bool
    steps: int
    total_reward: float


@dataclass
class LearnedReward:
    """The reward that is learned: scale * task reward + bias, at every step.

    before_intervention: replaces the reward of the last step before a human takes over (RLIF); for maps that
    decide every step. largest: largest |learned reward| of a step so far.
    """

    scale: float = 1.0
    bias: float = 0.0
    before_intervention: float | None = None
    largest: float = 0.0

    def of(self, reward: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        learned = self.scale * reward + self.bias
        self.largest = max(self.largest, float(learned.abs().max()))
        return learned


class RunningDecisions:
    """The decision of every lane that is being executed and is not stored yet.

    A decision is one action or one executed chunk. shape: (Ta, a), the actions of an executed chunk. width:
    size of the stored action, a for maps that decide every step and Ta * a for those that decide chunks.
    """

    _SAVED = ("has_pending", "taken", "steps", "reward", "human")

    def __init__(self, lanes: int, shape: tuple[int, int], width: int) -> None:
        self.pending: dict[str, Tensor] = {}  # obs, ctx, u, critic_action; empty before the first decision
        self.has_pending = torch.zeros(lanes, dtype=torch.bool)
        self.taken = torch.zeros(lanes, *shape)  # actions executed since the decision, then those planned
        self.steps = torch.zeros(lanes, dtype=torch.long)
        self.reward = torch.zeros(lanes)  # discounted sum since the decision
        self.human = torch.zeros(lanes)  # 1 where a human has taken over since the decision
        self._lanes, self._width = torch.arange(lanes), width

    def start(self, rows: Rows, values: Mapping[str, Tensor], chunk: Tensor | None) -> None:
        """Start a decision in these lanes. values: obs, ctx, u, critic_action, with k rows.

        An episode may end inside a chunk. The actions that it cut off stay in the replay as they were
        planned: critics are asked about whole chunks, and would not know one that was filled up with zeros.
        """
        lanes = len(self._lanes)
        if not self.pending:
            self.pending = {name: torch.zeros(lanes, value.shape[1]) for name, value in values.items()}
        for name, value in values.items():
            if len(rows) == lanes:
                self.pending[name] = value.clone()
            else:
                self.pending[name][rows] = value
        self.has_pending[rows] = True
        self.steps[rows], self.reward[rows], self.human[rows] = 0, 0.0, 0.0
        if chunk is not None:
            self.taken[rows] = chunk[:, : self.taken.shape[1]]

    def step(self, executed: Float[Tensor, "n a"], reward: Float[Tensor, " n"], gamma: float) -> None:
        """Add one control step of all lanes: the executed action and the learned reward."""
        self.taken[self._lanes, self.steps] = executed
        self.reward += gamma ** self.steps.float() * reward
        self.steps += 1

    def mark_human(self, intervened: Bool[Tensor, " n"]) -> None:
        """Mark the decisions during which a human takes over."""
        self.human = torch.maximum(self.human, intervened.float())

    def entry(
        self,
        rows: Rows,
        after: tuple[Tensor, Tensor],
        terminated: Bool[Tensor, " k"] | None = None,
        truncated: Bool[Tensor, " k"] | None = None,
    ) -> dict[str, Tensor]:
        """Replay entries of these lanes' decisions. after: features and ctx of what followed."""
        no = torch.zeros(len(rows), dtype=torch.bool)
        return {name: value[rows] for name, value in self.pending.items()} | {
            "action": self.taken[rows].flatten(1)[:, : self._width],
            "reward": self.reward[rows],
            "steps": self.steps[rows],
            "next_obs": after[0],
            "next_ctx": after[1],
            "demo": self.human[rows],
            "terminated": no if terminated is None else terminated,
            "truncated": no if truncated is None else truncated,
            "cut": no,
        }

    def state_dict(self) -> dict[str, Tensor]:
        return {f"_{name}": getattr(self, name).clone() for name in self._SAVED}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name in self._SAVED:
            setattr(self, name, state[f"_{name}"].clone())


class RunningEpisodes:
    """Steps, return and interventions of the running episode of every lane."""

    _SAVED = ("length", "return", "intervened")

    def __init__(self, lanes: int) -> None:
        self.length: Int[Tensor, " n"] = torch.zeros(lanes, dtype=torch.long)
        self.total_reward = torch.zeros(lanes)
        self.intervened = torch.zeros(lanes, dtype=torch.bool)  # at the last step

    def step(self, reward: Float[Tensor, " n"]) -> None:
        """Add one control step of all lanes, with the task's own reward."""
        self.length += 1
        self.total_reward += reward

    def taken_over(self, intervened: Bool[Tensor, " n"]) -> Rows:
        """Lanes in which a human takes over in this step, after a step without one. Called before `step`."""
        started = torch.nonzero(intervened & ~self.intervened & (self.length > 0)).flatten()
        self.intervened = intervened.clone()
        return started

    def end(self, rows: Rows, info: Mapping[str, Any]) -> list[CollectedEpisode]:
        """Episodes that ended in these lanes; the next ones start. info: of the environment's step."""
        episodes = [
            CollectedEpisode(
                int(info["episode_seed"][i]),
                bool(info["success"][i]),
                int(self.length[i]),
                float(self.total_reward[i]),
            )
            for i in rows.tolist()
        ]
        self.length[rows], self.total_reward[rows], self.intervened[rows] = 0, 0.0, False
        return episodes

    def state_dict(self) -> dict[str, Tensor]:
        values = (self.length, self.total_reward, self.intervened)
        return {f"_{name}": value.clone() for name, value in zip(self._SAVED, values, strict=True)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.length, self.total_reward, self.intervened = (state[f"_{name}"].clone() for name in self._SAVED)
