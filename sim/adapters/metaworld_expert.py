"""Meta-World's scripted policies with adjustable noise: demonstrations of any quality."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import derive_seed, episode_noise
from robo_rl.core.shapes import Float, Int
from sim.adapters.metaworld import PACKAGE_STEPS
from sim.adapters.metaworld_tasks import TASKS

_REMEMBERED = 1024  # episodes whose noise is cached


class MetaWorldExpert:
    """action = clip(script(observation) + noise * N(0, I), -1, 1); noise keyed by (seed, episode seed, step).

    `noise` 0 is the script itself; with 0.1-0.5 most tasks are still solved; with 2 few are.
    """

    def __init__(self, task: str, noise: float = 0.0, seed: int = 0) -> None:
        if task not in TASKS:
            raise UnknownNameError("metaworld task", task, TASKS, "robo-rl info")
        if not 0.0 <= noise < float("inf"):
            raise ConfigError(
                f"noise is {noise}; expected a standard deviation of 0 or more, in units of the action."
            )
        from metaworld.policies import ENV_POLICY_MAP

        self._script: Any = ENV_POLICY_MAP[task]()  # type: ignore[abstract]  # typed too narrowly
        self._noise, self._seed = noise, seed
        self._draws: OrderedDict[int, NDArray[np.float32]] = OrderedDict()

    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n 4"]:
        parts = [obs[key] for key in ("state", "privileged.task") if key in obs]
        states = torch.cat(parts, dim=1).cpu().numpy().astype(np.float64)
        with warnings.catch_warnings():
            # The scripts aim beyond the action limits on purpose, and warn about it in every step.
            warnings.filterwarnings("ignore", "Constant\\(s\\) may be too high")
            actions: NDArray[Any] = np.stack([self._script.get_action(state) for state in states])
        if self._noise > 0.0:
            pairs = zip(episode_seed.tolist(), step.tolist(), strict=True)
            actions = actions + self._noise * np.stack([self._draw(seed)[t] for seed, t in pairs])
        return torch.from_numpy(np.clip(actions, -1.0, 1.0).astype(np.float32))

    def _draw(self, episode_seed: int) -> NDArray[np.float32]:
        """(steps, 4) standard normal noise of one episode."""
        if episode_seed not in self._draws:
            key = derive_seed("expert", self._seed, episode_seed)
            self._draws[episode_seed] = episode_noise(key, PACKAGE_STEPS, (4,)).numpy()
            if len(self._draws) > _REMEMBERED:
                self._draws.popitem(last=False)
        return self._draws[episode_seed]
