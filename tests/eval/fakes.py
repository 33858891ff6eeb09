"""A vector environment and a policy whose outcomes can be computed by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.protocols import Obs, StepResult
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec

LIMIT = 4.0  # physical action limit


def episode_length(seed: int) -> int:
    return 3 + seed % 5


class PushButtonEnv:
    """An episode of seed s lasts 3 + s % 5 steps and succeeds when its last action is at least (s % 7) / 7 *
    4.

    state = (seed's threshold, steps so far); the action is one number in [-4, 4].
    """

    metadata: Mapping[str, Any] = {"autoreset_mode": "same_step"}

    def __init__(
        self, num_envs: int, *, coverage: bool = False, max_steps: int = 8, shuffle_lanes: bool = False
    ) -> None:
        self.num_envs, self._coverage, self._shuffle = num_envs, coverage, shuffle_lanes
        action = ActionSpec((-LIMIT,), (LIMIT,), "N")
        self.spec = EnvSpec("fake/button", {"state": ArraySpec((2,), unit="SI")}, action, max_steps, 50.0)
        self.actions: list[Tensor] = []

    def reset(self, seeds: Iterator[int]) -> Obs:
        self._seeds = seeds
        self._seed = [next(seeds) for _ in range(self.num_envs)]
        self._t = [0] * self.num_envs
        return self._obs()

    def _obs(self) -> Obs:
        return {
            "state": torch.tensor([[(s % 7) / 7, float(t)] for s, t in zip(self._seed, self._t, strict=True)])
        }

    def step(self, action: Tensor) -> StepResult:
        self.actions.append(action.clone())
        seeds = list(self._seed)
        self._t = [t + 1 for t in self._t]
        ended = torch.tensor([t >= episode_length(s) for s, t in zip(seeds, self._t, strict=True)])
        success = ended & (action[:, 0] >= torch.tensor([(s % 7) / 7 * LIMIT for s in seeds]))
        final_obs = self._obs()
        for lane in torch.nonzero(ended).flatten().tolist():
            self._seed[lane], self._t[lane] = next(self._seeds), 0
        info: dict[str, Any] = {"final_obs": final_obs, "final_mask": ended, "success": success}
        info["episode_seed"] = torch.tensor(seeds[::-1] if self._shuffle else seeds)
        if self._coverage:
            info["max_coverage"] = action[:, 0] / LIMIT
        return self._obs(), success.float(), success, ended & ~success, info

    def step_async(self, action: Tensor) -> None:
        self._pending = action

    def step_wait(self) -> StepResult:
        return self.step(self._pending)

    def snapshot(self) -> dict[str, Any]:
        raise NotImplementedError

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        raise NotImplementedError

    def render(self, lane: int = 0) -> Tensor:
        """A bar that grows with time, 65 x 97: odd sides, which H.264 does not accept."""
        frame = torch.full((65, 97, 3), 40, dtype=torch.uint8)
        frame[:, : 10 * (1 + self._t[lane])] = torch.tensor([80, 160, 240], dtype=torch.uint8)
        return frame

    def close(self) -> None:
        pass


class NoisyPolicy:
    """chunk = clamp(offset + spread * noise, -1, 1): the outcome follows from the noise alone."""

    def __init__(self, offset: float = 0.0, spread: float = 1.0) -> None:
        self.obs_spec = {"state": ArraySpec((2,))}
        self.action_spec = ActionSpec((-LIMIT,), (LIMIT,), "N")
        self.obs_steps, self.chunk, self.execute = 2, 4, 2
        self.offset, self.spread = offset, spread

    def features(self, obs: Obs) -> Tensor:
        return obs["state"].flatten(1)

    def sample(self, obs: Obs, noise: Tensor) -> Tensor:
        return self.sample_from(self.features(obs), noise)

    def sample_from(self, features: Tensor, noise: Tensor) -> Tensor:
        return (self.offset + self.spread * noise).clamp(-1.0, 1.0)

    def refine(self, obs: Obs, action: Tensor) -> Tensor:
        return action
