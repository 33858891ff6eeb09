"""Flight tasks as a `VecEnv`, for learners that take rewards, for evaluation and for bundles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robo_rl.core.keyed_random import keyed_normal, keyed_uniform
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float, Int64
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.compile.kernels import compile_kernel
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.layout import POS, parameters
from sim.flight.command import MOTORS, level_physics, make_command
from sim.flight.flight import first_observation, make_flight, obs_size
from sim.flight.keyed_vec_env import Advanced, KeyedVecEnv
from sim.flight.memory import layout
from sim.flight.picture import picture
from sim.flight.realism import Realism
from sim.flight.setting import (
    DEFAULT,
    FlightOptions,
    check_options,
    measured_task,
    other_step,
    senses_of,
)
from sim.tasks.flight.observation import SENSED_SIZE, FlightSenses
from sim.tasks.flight.protocol import FlightStep, FlightTask

_START, _SENSOR = 0, 1  # streams of an episode's random numbers


def flight_spec(
    task: FlightTask, senses: FlightSenses, options: FlightOptions | None = None, action: ActionSpec = MOTORS
) -> EnvSpec:
    """Contract of a flight policy: observations with units, and actions.

    Its name contains the `options` that are not the default. action: action space of their command level.
    """
    front, behind = task.units
    parts = (
        front,
        f"last {senses.history} actions 1",
        "integral of position m s" if senses.integral else "",
        behind,
    )
    state = ArraySpec((obs_size(task, senses),), unit=", ".join(part for part in parts if part))
    name = f"quad/{task.name}{'' if options is None else options.name_suffix}"
    return EnvSpec(name, {"state": state}, action, task.max_steps, 1 / task.dt_s)


class QuadVecEnv(KeyedVecEnv):
    """n drones in one flight task; each episode is a pure function of its seed and its actions.

    compiled: None compiles from 64 lanes on, because for fewer lanes compiling takes longer than it saves.
    Success is that of the task's `score`, as in `robo-rl fly`. For tasks with an error, `info["error_m"]`
    (n,) [m] holds it in the step that ends the episode; it is infinite in all other steps and where the
    episode ended early.

    `measured` and `reference` are inputs of classical controllers and their experts, not of policies.
    """

    saved = ("_state", "_memory", "_external", "_obs", "_episode_seed", "_age", "_tally")
    _state: Tensor  # (17, n)
    _memory: Tensor
    _external: Tensor
    _obs: Tensor  # (o, n)
    _tally: Tensor  # (n,) of the task, for its verdict

    def __init__(
        self,
        task: str,
        num_envs: int,
        options: FlightOptions = DEFAULT,
        *,
        max_episode_steps: int | None = None,
        compiled: bool | None = None,
    ) -> None:
        super().__init__(num_envs)
        self.craft: Craft = load_craft(options.craft)
        check_options(task, options)
        whole: Any = measured_task(task, self.craft, options)
        self.task: FlightTask = (
            whole if max_episode_steps is None else replace(whole, max_steps=max_episode_steps)
        )
        self.senses = senses_of(task, options)
        physics, step = level_physics(options.commanded, self.task.dt_s), None
        if (other := other_step(options, self.craft, self.task, num_envs)) is not None:
            (physics, step), compiled, self._movable = other, False, False
        small_s = physics.dt_s / physics.substeps
        self.command = make_command(options.commanded, self.craft, small_s)
        self.spec = flight_spec(self.task, self.senses, options, self.command.spec)
        self._task_state_slice = layout(self.task, self.senses, Realism()).task_state
        self._params = parameters(self.craft, small_s)
        self._function = make_flight(
            self.craft, physics, self.task, self.senses, step=step, level=options.commanded
        )
        self._compiled = num_envs >= 64 if compiled is None else compiled
        self._place(torch.device("cpu"))

    def _place(self, device: torch.device) -> None:
        """Put all tensors and the compiled step on a device."""
        self.device, self._params, num = device, self._params.to(device), self.num_envs
        self._begin_all(torch.zeros(num, dtype=torch.long, device=device))
        examples = (self._state, self._memory, self._state.new_zeros(4, num), self._params, self._external,
                    self._state.new_zeros(SENSED_SIZE, num))  # fmt: skip
        self._flight = compile_kernel(self._function, examples, eager=not self._compiled)

    def _given(self) -> Obs:
        """Observations for the caller to keep."""
        return {"state": self._obs.T.clone(memory_format=torch.contiguous_format)}

    def _advance(self, action: Float[Tensor, "4 n"]) -> Advanced:
        noise = keyed_normal(self._episode_seed, self._age + 1, SENSED_SIZE, _SENSOR)
        self._state, self._memory, self._obs, cost, left, _ = self._flight(
            self._state, self._memory, action, self._params, self._external, noise
        )
        self._age = self._age + 1
        terminated = left > 0.0
        flying = FlightStep(self._from_goal(), self._task_state, self._age, terminated)
        self._tally = self.task.tally(self._tally, flying)
        success, error_m = self.task.verdict(self._tally, flying)
        return Advanced(
            self.task.reward(cost), terminated, success, {} if error_m is None else {"error_m": error_m}
        )

    def _first_step(self, seeds: Int64[Tensor, " k"]) -> dict[str, Tensor]:
        """All that changes, at the start of episodes with these seeds. The last axis counts lanes."""
        state, external = self.task.start(
            self.craft, keyed_uniform(seeds, 0, self.task.start_numbers, _START)
        )
        noise = keyed_normal(seeds, 0, SENSED_SIZE, _SENSOR)
        memory, obs = first_observation(state, external, noise, self.command.hover, self.task, self.senses)
        age, tally = torch.zeros_like(seeds), torch.zeros_like(state[0])
        return dict(zip(self.saved, (state, memory, external, obs, seeds, age, tally), strict=True))

    @property
    def _max_steps(self) -> int:
        return self.task.max_steps

    @property
    def _task_state(self) -> Float[Tensor, "k n"]:
        return self._memory[self._task_state_slice]

    def _from_goal(self) -> Float[Tensor, "3 n"]:
        return self.task.relative(self._state, self._external, self._task_state)[POS]

    def measured(self) -> Float[Tensor, "17 n"]:
        """The state, with position, velocity and rates as sensors measure them."""
        return self.task.measured(self._obs, self._state, self._external, self._task_state)

    def reference(self) -> Float[Tensor, "10 n"]:
        """Position [m], velocity, acceleration (SI, world) and yaw [rad] for a controller to follow."""
        return self.task.reference(self._external, self._task_state)

    def render(self, lane: int = 0) -> Tensor:
        values = (self._state, self._from_goal())
        state, offset = (value[:, lane].cpu().numpy().astype(np.float64) for value in values)
        middle_m, extent_m = self.task.scene
        return torch.from_numpy(picture(state, extent_m, state[POS] - offset, middle_m))

    def close(self) -> None:
        """Nothing to close."""


def make_quad_env(
    task: str,
    num_envs: int,
    *,
    max_episode_steps: int | None = None,
    compiled: bool | None = None,
    **options: Any,
) -> QuadVecEnv:
    """The environment quad/<task>, as names in the registry give its options (`QuadEnvOptions`)."""
    return QuadVecEnv(
        task, num_envs, FlightOptions(**options), max_episode_steps=max_episode_steps, compiled=compiled
    )
