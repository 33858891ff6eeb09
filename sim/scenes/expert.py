"""Scripted experts of tasks in scenes, with adjustable noise, in every control mode.

    command = clip(script(view) + noise * N(0, I), -1, 1)

The script of an arm commands the tool. Where joints are commanded, its command goes through the inverse
kinematics of Cartesian control, and the resulting joints are the action.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.keyed_random import keyed_normal
from robo_rl.core.protocols import Obs, VecEnv
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float, Int
from sim.scenes.task_env import TaskVecEnv
from sim.tasks.table import suite_of

_STREAM = 2  # stream of an episode's random numbers, besides those of the environment


class SceneExpert:
    """noise: standard deviation in units of a full command; white, keyed by (seed, episode seed, step)."""

    def __init__(self, task: str, noise: float = 0.0, seed: int = 0) -> None:
        if not 0.0 <= noise < float("inf"):
            raise ConfigError(
                f"noise is {noise}; expected a standard deviation of 0 or more, in units of the action."
            )
        self._named, self._noise, self._key = f"{suite_of(task)}/{task}", noise, derive_seed("expert", seed)
        self._env: TaskVecEnv | None = None

    def watch(self, env: VecEnv) -> None:
        """Act in the lanes of this environment. Raises EnvError for one of another kind."""
        if not isinstance(env, TaskVecEnv):
            raise EnvError(
                f"The expert of {self._named} acts in environments of tasks in scenes, found {env.spec.name}."
            )
        self._env = env

    @torch.no_grad()
    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n a"]:
        if self._env is None:
            raise EnvError(
                f"The expert of {self._named} reads the state of the scene and has no environment yet. Make "
                "it by make_expert(name, noise, seed, env)."
            )
        action = self._env.script()
        if self._noise > 0.0:
            noise = keyed_normal(episode_seed ^ self._key, step, action.shape[1], _STREAM).T
            action = action + self._noise * noise.to(action)
        return self._env.from_script(action.clamp(-1.0, 1.0)).to("cpu", torch.float32)

    def memory(self) -> Tensor:
        """Empty: the expert has no state."""
        return torch.zeros(0)

    def recall(self, memory: Tensor) -> None:
        """Do nothing: the expert has no state."""
