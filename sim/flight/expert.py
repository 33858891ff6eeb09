"""Classical controllers as experts for `quad/...`: demonstrations by this project's PID controller.

    action = clip(controller(measured state, reference) + noise * N(0, I), -1, 1)   in normalised units

A controller needs inputs that policies do not observe: true attitude, rotor speeds and the reference. The
expert therefore gets the environment by `watch`, and uses only its `measured()` and `reference()`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.keyed_random import keyed_normal
from robo_rl.core.protocols import Obs, VecEnv
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float, Int
from sim.flight.control.controllers import Controller, make_controller
from sim.flight.vec_env import QuadVecEnv

CONTROLLER = {
    "hover": "pid",
    "figure8": "pid",
    "waypoints": "pid",
    "race": "pid",
    "obstacles": "pid",
}  # task -> controller that demonstrates it
_STREAM = 2  # stream of an episode's random numbers; the environment uses others


class FlightExpert:
    """Controller of a task, with white noise on its commands that depends on (seed, episode seed, step).

    The controller's memory of an episode (a PID's integral) is reset in lanes where `step` is 0, so an
    episode is the same in any lane; `memory` and `recall` save and restore it. Raises ConfigError for a
    negative noise.
    """

    def __init__(self, task: str, noise: float = 0.0, seed: int = 0) -> None:
        if not 0.0 <= noise < float("inf"):
            raise ConfigError(
                f"noise is {noise}; expected a standard deviation of 0 or more, in units of the action."
            )
        self._task, self._noise = task, noise
        self._key = derive_seed("expert", seed)
        self._env: QuadVecEnv | None = None
        self._controller: Controller | None = None
        self._memory = torch.zeros(0, 0)

    def watch(self, env: VecEnv) -> None:
        """Use this environment's measurements. Raises EnvError for an environment of another engine."""
        if not isinstance(env, QuadVecEnv):
            raise EnvError(
                f"The expert of quad/{self._task} flies in quad environments, found {env.spec.name}."
            )
        self._env = env
        self._controller = make_controller(
            CONTROLLER[self._task], env.craft, env.task.dt_s, level=env.command.level
        )
        self._memory = self._controller.blank(env.num_envs)

    @torch.no_grad()
    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n 4"]:
        if self._env is None or self._controller is None:
            raise EnvError(
                f"The expert of quad/{self._task} needs the environment's state, but `watch` was not called. "
                "Make the expert by make_expert(name, noise, seed, env)."
            )
        memory = torch.where(step == 0, 0.0, self._memory)
        command, self._memory = self._controller(self._env.measured(), self._env.reference(), memory)
        action = self._env.command.normalized(command)
        if self._noise > 0.0:
            action = action + self._noise * keyed_normal(episode_seed ^ self._key, step, 4, _STREAM)
        return self._env.spec.action.denormalize(action.T).contiguous()

    def memory(self) -> Float[Tensor, "m n"]:
        return self._memory.clone()

    def recall(self, memory: Float[Tensor, "m n"]) -> None:
        self._memory = memory.clone()
