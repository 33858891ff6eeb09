"""State of a collection between control steps: running decisions, running episodes, reward transform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from robo_rl.core.lanes import Lanes
from robo_rl.core.shapes import Bool, Float

LOGGED_SINGLY = 64  # thousands of environments end thousands of episodes between two reads of the device


@dataclass(frozen=True, slots=True)
class CollectedEpisode:
    """One finished episode."""

    seed: int
    success: bool
    steps: int
    total_reward: float
    reported: bool = True  # False: the environment has not reported whether it succeeded


def episode_logs(episodes: Sequence[CollectedEpisode]) -> list[dict[str, float]]:
    """Values to log: of each episode, or their means if more than `LOGGED_SINGLY` ended together."""
    rows = [(float(each.success), float(each.steps), each.total_reward) for each in episodes]
    if len(rows) > LOGGED_SINGLY:
        rows = [tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))]
    names = ("train/success", "train/episode_steps", "train/return")
    unknown = {names[0]} if not any(each.reported for each in episodes) else set()
    logs = [dict(zip(names, row, strict=True)) for row in rows]
    return [{name: log[name] for name in names if name not in unknown} for log in logs]


class RewardTransform:
    """Reward for training: scale * task reward + bias, at every step.

    before_intervention: replaces the reward of the last step before a human takes over (RLIF); for maps that
    decide every step.
    """

    def __init__(
        self, scale: float = 1.0, bias: float = 0.0, before_intervention: float | None = None
    ) -> None:
        self.scale, self.bias, self.before_intervention = scale, bias, before_intervention
        self._largest: Tensor | float = 0.0

    @property
    def largest(self) -> float:
        """Largest |transformed reward| of a step so far. Reads the device."""
        return float(self._largest)

    @largest.setter
    def largest(self, value: float) -> None:
        self._largest = value

    def apply(self, reward: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        transformed = self.scale * reward + self.bias
        self._largest = transformed.abs().amax().clamp(min=self._largest)
        return transformed

    def punish(self) -> float:
        """The reward before an intervention, which now counts for `largest`."""
        assert self.before_intervention is not None
        punished = abs(self.before_intervention)
        self._largest = torch.as_tensor(self._largest).clamp(min=punished)
        return self.before_intervention


class RunningDecisions:
    """Decisions that are being executed and not stored yet, one per lane.

    A decision is one action or one executed chunk. lanes: all of them. shape: (Ta, a), the actions of an
    executed chunk. width: size of the stored action, a for maps that decide every step and Ta * a for those
    that decide chunks.
    """

    # Attribute -> name in checkpoints.
    _SAVED: ClassVar = {
        "has_pending": "_has_pending",
        "actions": "_taken",
        "steps": "_steps",
        "reward": "_reward",
        "human": "_human",
    }

    def __init__(self, lanes: Lanes, shape: tuple[int, int], width: int) -> None:
        num, device = len(lanes), lanes.ids.device
        # obs, ctx, u, critic_action, and the frame of pictures; empty before the first decision
        self.pending: dict[str, Tensor] = {}
        self.has_pending = torch.zeros(num, dtype=torch.bool, device=device)
        # actions executed since the decision, followed by planned ones
        self.actions = torch.zeros(num, *shape, device=device)
        self.steps = torch.zeros(num, dtype=torch.long, device=device)
        self.reward = torch.zeros(num, device=device)  # discounted sum since the decision
        self.human = torch.zeros(num, device=device)  # 1 where a human has intervened since the decision
        self._lanes, self._width = lanes, width

    def start(self, lanes: Lanes, values: Mapping[str, Tensor], chunk: Tensor | None) -> None:
        """Start a decision in these lanes. values: of `pending`, with k rows.

        If an episode ends inside a chunk, the replay stores the remaining actions as planned: critics take
        entire chunks, and chunks padded with zeros would be out of distribution.
        """
        if not self.pending:
            num = len(self._lanes)
            self.pending = {name: value.new_zeros(num, *value.shape[1:]) for name, value in values.items()}
        for name, value in values.items():
            lanes.write(self.pending[name], value)
        lanes.write(self.has_pending, True)
        for counter in (self.steps, self.reward, self.human):
            lanes.write(counter, 0)
        if chunk is not None:
            lanes.write(self.actions, chunk[:, : self.actions.shape[1]])

    def step(self, executed: Float[Tensor, "n a"], reward: Float[Tensor, " n"], gamma: float) -> None:
        """Add one control step of all lanes: the executed action and the transformed reward."""
        self.actions[self._lanes.ids, self.steps] = executed
        self.reward += gamma ** self.steps.float() * reward
        self.steps += 1

    def mark_human(self, intervened: Bool[Tensor, " n"]) -> None:
        """Mark the decisions in which a human intervenes."""
        self.human = torch.maximum(self.human, intervened.float())

    def entry(
        self,
        lanes: Lanes,
        after: Mapping[str, Tensor],
        terminated: Bool[Tensor, " k"] | None = None,
        truncated: Bool[Tensor, " k"] | None = None,
    ) -> dict[str, Tensor]:
        """Replay entries of these lanes' decisions. after: obs, ctx and frame at the next observation."""
        no = torch.zeros_like(lanes.ids, dtype=torch.bool)
        return {name: lanes.read(value) for name, value in self.pending.items()} | {
            "action": lanes.read(self.actions).flatten(1)[:, : self._width],
            "reward": lanes.read(self.reward),
            "steps": lanes.read(self.steps),
            "demo": lanes.read(self.human),
            "terminated": no if terminated is None else terminated,
            "truncated": no if truncated is None else truncated,
            "cut": no,
            **{f"next_{name}": value for name, value in after.items()},
        }

    def state_dict(self) -> dict[str, Tensor]:
        return {saved: getattr(self, name).clone() for name, saved in self._SAVED.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, saved in self._SAVED.items():
            getattr(self, name).copy_(state[saved])


class RunningEpisodes:
    """Length, return and intervention flag of the running episode of every lane, and a log of ended ones.

    The log stays on the device until `drain`. lanes: all of them.
    """

    _SAVED = ("length", "return", "intervened")

    def __init__(self, lanes: Lanes) -> None:
        num, device = len(lanes), lanes.ids.device
        self._lanes = lanes
        self.length = torch.zeros(num, dtype=torch.long, device=device)
        self.total_reward = torch.zeros(num, device=device)
        self.intervened = torch.zeros(num, dtype=torch.bool, device=device)  # at the last step
        # For each step with ends (5, k): whether the lane ended, and the episode's seed, success (-1: not
        # reported), length, return.
        self._ended: list[Tensor] = []

    def step(self, reward: Float[Tensor, " n"]) -> None:
        """Add one control step of all lanes, with the task's own reward."""
        self.length += 1
        self.total_reward += reward

    def new_interventions(self, intervened: Bool[Tensor, " n"]) -> Lanes:
        """Lanes in which an intervention starts in this step. Call before `step`."""
        started = self._lanes.where(intervened & ~self.intervened & (self.length > 0))
        self.intervened = intervened.clone()
        return started

    def end(self, lanes: Lanes, info: Mapping[str, Any]) -> None:
        """Log the episodes that ended in these lanes and restart their counters. info: from the environment's
        step.
        """
        success = info["success"].double()
        if "reports_success" in info:
            success = success - ((info["reports_success"] == 0) & ~info["success"]).double()
        values = (info["episode_seed"], success, self.length, self.total_reward)
        rows = [lanes.read(value).double() for value in values]
        ended = torch.ones_like(rows[0]) if lanes.mask is None else lanes.mask.double()
        self._ended.append(torch.stack([ended, *rows]))
        for counter in (self.length, self.total_reward, self.intervened):
            lanes.write(counter, 0)

    def drain(self) -> list[CollectedEpisode]:
        """Episodes that ended since the last call, in order. Reads the device once."""
        if not self._ended:
            return []
        rows = torch.cat(self._ended, dim=1).cpu()
        self._ended = []
        return [
            CollectedEpisode(int(seed), success > 0, int(steps), float(total), success >= 0)
            for seed, success, steps, total in rows[1:, rows[0] > 0].t().tolist()
        ]

    def state_dict(self) -> dict[str, Tensor]:
        values = (self.length, self.total_reward, self.intervened)
        kept = {f"_{name}": value.clone() for name, value in zip(self._SAVED, values, strict=True)}
        return kept | ({"_ended": torch.cat(self._ended, dim=1)} if self._ended else {})

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        values = (self.length, self.total_reward, self.intervened)
        for name, value in zip(self._SAVED, values, strict=True):
            value.copy_(state[f"_{name}"])
        self._ended = [state["_ended"].to(self.length.device)] if "_ended" in state else []
