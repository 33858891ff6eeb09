"""State of a collection between control steps: running decisions, running episodes, reward transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from robo_rl.core.protocols import LaneIds
from robo_rl.core.shapes import Bool, Float, Int


@dataclass(frozen=True, slots=True)
class CollectedEpisode:
    """One finished episode."""

    seed: int
    success: bool
    steps: int
    total_reward: float


@dataclass
class RewardTransform:
    """Reward for training: scale * task reward + bias, at every step.

    before_intervention: replaces the reward of the last step before a human takes over (RLIF); for maps that
    decide every step. largest: largest |transformed reward| of a step so far.
    """

    scale: float = 1.0
    bias: float = 0.0
    before_intervention: float | None = None
    largest: float = 0.0

    def apply(self, reward: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        transformed = self.scale * reward + self.bias
        self.largest = max(self.largest, float(transformed.abs().max()))
        return transformed


class RunningDecisions:
    """Decisions that are being executed and not stored yet, one per lane.

    A decision is one action or one executed chunk. shape: (Ta, a), the actions of an executed chunk. width:
    size of the stored action, a for maps that decide every step and Ta * a for those that decide chunks.
    """

    # Attribute -> name in checkpoints.
    _SAVED: ClassVar = {
        "has_pending": "_has_pending",
        "actions": "_taken",
        "steps": "_steps",
        "reward": "_reward",
        "human": "_human",
    }

    def __init__(self, lanes: int, shape: tuple[int, int], width: int) -> None:
        self.pending: dict[str, Tensor] = {}  # obs, ctx, u, critic_action; empty before the first decision
        self.has_pending = torch.zeros(lanes, dtype=torch.bool)
        # actions executed since the decision, followed by planned ones
        self.actions = torch.zeros(lanes, *shape)
        self.steps = torch.zeros(lanes, dtype=torch.long)
        self.reward = torch.zeros(lanes)  # discounted sum since the decision
        self.human = torch.zeros(lanes)  # 1 where a human has intervened since the decision
        self._lanes, self._width = torch.arange(lanes), width

    def start(self, lane_ids: LaneIds, values: Mapping[str, Tensor], chunk: Tensor | None) -> None:
        """Start a decision in these lanes. values: obs, ctx, u, critic_action, with k rows.

        If an episode ends inside a chunk, the replay stores the remaining actions as planned: critics take
        entire chunks, and chunks padded with zeros would be out of distribution.
        """
        lanes = len(self._lanes)
        if not self.pending:
            self.pending = {name: torch.zeros(lanes, value.shape[1]) for name, value in values.items()}
        for name, value in values.items():
            if len(lane_ids) == lanes:
                self.pending[name] = value.clone()
            else:
                self.pending[name][lane_ids] = value
        self.has_pending[lane_ids] = True
        self.steps[lane_ids], self.reward[lane_ids], self.human[lane_ids] = 0, 0.0, 0.0
        if chunk is not None:
            self.actions[lane_ids] = chunk[:, : self.actions.shape[1]]

    def step(self, executed: Float[Tensor, "n a"], reward: Float[Tensor, " n"], gamma: float) -> None:
        """Add one control step of all lanes: the executed action and the transformed reward."""
        self.actions[self._lanes, self.steps] = executed
        self.reward += gamma ** self.steps.float() * reward
        self.steps += 1

    def mark_human(self, intervened: Bool[Tensor, " n"]) -> None:
        """Mark the decisions in which a human intervenes."""
        self.human = torch.maximum(self.human, intervened.float())

    def entry(
        self,
        lane_ids: LaneIds,
        after: tuple[Tensor, Tensor],
        terminated: Bool[Tensor, " k"] | None = None,
        truncated: Bool[Tensor, " k"] | None = None,
    ) -> dict[str, Tensor]:
        """Replay entries of these lanes' decisions. after: features and ctx at the next observation."""
        no = torch.zeros(len(lane_ids), dtype=torch.bool)
        return {name: value[lane_ids] for name, value in self.pending.items()} | {
            "action": self.actions[lane_ids].flatten(1)[:, : self._width],
            "reward": self.reward[lane_ids],
            "steps": self.steps[lane_ids],
            "next_obs": after[0],
            "next_ctx": after[1],
            "demo": self.human[lane_ids],
            "terminated": no if terminated is None else terminated,
            "truncated": no if truncated is None else truncated,
            "cut": no,
        }

    def state_dict(self) -> dict[str, Tensor]:
        return {saved: getattr(self, name).clone() for name, saved in self._SAVED.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, saved in self._SAVED.items():
            setattr(self, name, state[saved].clone())


class RunningEpisodes:
    """Length, return and intervention flag of the running episode of every lane."""

    _SAVED = ("length", "return", "intervened")

    def __init__(self, lanes: int) -> None:
        self.length: Int[Tensor, " n"] = torch.zeros(lanes, dtype=torch.long)
        self.total_reward = torch.zeros(lanes)
        self.intervened = torch.zeros(lanes, dtype=torch.bool)  # at the last step

    def step(self, reward: Float[Tensor, " n"]) -> None:
        """Add one control step of all lanes, with the task's own reward."""
        self.length += 1
        self.total_reward += reward

    def new_interventions(self, intervened: Bool[Tensor, " n"]) -> LaneIds:
        """Lanes in which an intervention starts in this step. Call before `step`."""
        started = torch.nonzero(intervened & ~self.intervened & (self.length > 0)).flatten()
        self.intervened = intervened.clone()
        return started

    def end(self, lane_ids: LaneIds, info: Mapping[str, Any]) -> list[CollectedEpisode]:
        """Episodes that ended in these lanes, whose counters restart. info: from the environment's step."""
        episodes = [
            CollectedEpisode(
                int(info["episode_seed"][i]),
                bool(info["success"][i]),
                int(self.length[i]),
                float(self.total_reward[i]),
            )
            for i in lane_ids.tolist()
        ]
        self.length[lane_ids], self.total_reward[lane_ids], self.intervened[lane_ids] = 0, 0.0, False
        return episodes

    def state_dict(self) -> dict[str, Tensor]:
        values = (self.length, self.total_reward, self.intervened)
        return {f"_{name}": value.clone() for name, value in zip(self._SAVED, values, strict=True)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.length, self.total_reward, self.intervened = (state[f"_{name}"].clone() for name in self._SAVED)
