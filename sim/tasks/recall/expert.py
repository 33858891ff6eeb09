"""Scripted expert of the recall tasks: waits until the hand is released, then goes straight to the button."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float, Int
from sim.tasks.recall.buttons import STEP_M, TASKS
from sim.tasks.recall.lane import EXPERT_STATE


class RecallExpert:
    """action = clip((button - hand) / 4 cm + noise, -1, 1) once the hand is released, else 0.

    noise: standard deviation, independent in each step.
    """

    def __init__(self, task: str, noise: float = 0.0, seed: int = 0) -> None:
        if task not in TASKS:
            raise UnknownNameError("recall task", task, TASKS)
        if not 0.0 <= noise < float("inf"):
            raise ConfigError(f"noise is {noise}; expected a standard deviation of 0 or more.")
        self._noise, self._seed = noise, seed

    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n 2"]:
        known = obs[EXPERT_STATE]
        action = (known[:, :2] - obs["state"]) / STEP_M
        if self._noise > 0.0:
            pairs = zip(episode_seed.tolist(), step.tolist(), strict=True)
            action = action + self._noise * torch.stack([self._draw(seed, t) for seed, t in pairs])
        return torch.where(known[:, 2:] > 0.5, action.clamp(-1.0, 1.0), 0.0)

    def _draw(self, episode_seed: int, step: int) -> Float[Tensor, " 2"]:
        seed = derive_seed("recall expert", self._seed, episode_seed, step)
        return torch.from_numpy(
            np.random.Generator(np.random.Philox(seed)).standard_normal(2).astype(np.float32)
        )
