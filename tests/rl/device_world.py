"""A task whose simulator is tensors alone, as an engine on a GPU is: nothing in it reads the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.keyed_random import keyed_uniform
from robo_rl.core.protocols import Obs, StepResult
from robo_rl.core.seeding import EpisodeSeeds
from tests.rl.worlds import LIMIT, SPEC


class DeviceWorld:
    """state = (target, position); position += action / 4. Success and end within 0.2 of the target.

    Seeds of coming episodes lie on the device; `reset` fetches enough for a test.
    """

    spec, metadata = SPEC, {"autoreset_mode": "same_step"}

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def reset(self, seeds: Iterator[int]) -> Obs:
        self._coming = torch.tensor([next(seeds) for _ in range(20_000)])
        self._taken = torch.full((), self.num_envs)
        self._seed = self._coming[: self.num_envs].clone()
        self._age = torch.zeros_like(self._seed)
        self._state = self._start(self._seed)
        return {"state": self._state.clone()}

    def _start(self, seed: Tensor) -> Tensor:
        target = 1.0 + 3.0 * keyed_uniform(seed, 0, 1)[0]
        return torch.stack([target, torch.ones_like(target)], dim=1)

    def step_async(self, action: Tensor) -> None:
        self._action = action

    def step_wait(self) -> StepResult:
        position = self._state[:, 1] + self._action[:, 0] / LIMIT
        final = torch.stack([self._state[:, 0], position], dim=1)
        near = (final[:, 0] - position).abs() < 0.2
        self._age = self._age + 1
        truncated = ~near & (self._age >= SPEC.max_episode_steps)
        ended, seed = near | truncated, self._seed
        following = self._coming[(self._taken + ended.cumsum(0) - 1).clamp(min=0)]
        self._taken = self._taken + ended.sum()
        self._seed = torch.where(ended, following, seed)
        self._age = torch.where(ended, 0, self._age)
        self._state = torch.where(ended.unsqueeze(1), self._start(self._seed), final)
        info = {
            "final_obs": {"state": final},
            "final_mask": ended,
            "success": near,
            "episode_seed": seed,
            "next_seed": self._seed,
        }
        return {"state": self._state.clone()}, near.float(), near, truncated, info

    def step(self, action: Tensor) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def snapshot(self) -> dict[str, Any]:
        raise NotImplementedError

    def restore(self, snapshot: Mapping[str, Any]) -> Obs:
        raise NotImplementedError

    def render(self, lane: int = 0) -> Tensor:
        raise NotImplementedError

    def close(self) -> None:
        pass


def first_seeds(root: tuple[str, ...], count: int) -> list[int]:
    """Seeds of the first episodes."""
    seeds = EpisodeSeeds(root)
    return [next(seeds) for _ in range(count)]
