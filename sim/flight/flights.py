"""Many flights in parallel, differentiable: the environment of first-order learning through the dynamics.

The last axis of a tensor counts drones: observations (o, n), actions (4, n). A flight that ends is replaced
by a fresh one in the same step, and no gradient flows between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int
from sim.compile.kernels import compile_kernel, differentiable
from sim.engines.quad.craft import Craft
from sim.engines.quad.dynamics import QuadPhysics, Step
from sim.engines.quad.layout import NAMES, Spread
from sim.flight.command import ON_MOTORS, CommandLevel, level_physics, make_command
from sim.flight.flight import FlightFn, make_flight, noise_size
from sim.flight.memory import layout
from sim.flight.realism import Realism
from sim.flight.starts import InitialConditions, StartDistribution
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.protocol import FlightTask

_POOL = 4096  # starts drawn at a time: one at a time they would take longer than flying
_NOISE_STEPS = 32  # steps of sensor noise drawn at a time
_NOTHING = (torch.zeros(0, dtype=torch.long), torch.zeros(0, 0))  # no lane, no observation


class Flights:
    """`num` flights of one craft in one task.

    gradient: keep the graph through the dynamics. level: command level of the actions, see command.py. step:
    step of another engine instead of the physics, which runs eagerly; with gradient the states are that
    engine's and the gradients those of our physics at the same states and commands. compile_s: CPU seconds
    spent compiling, 0 when the kernels were on disk. `state_dict` holds everything that changes.
    """

    state: Tensor  # (17, n)
    memory: Tensor
    params: Tensor
    external: Tensor
    obs: Tensor  # (o, n)

    def __init__(
        self,
        craft: Craft,
        task: FlightTask,
        senses: FlightSenses,
        num: int,
        seed: int,
        *,
        physics: QuadPhysics | None = None,
        spread: Spread | None = None,
        realism: Realism | None = None,
        gradient: bool = True,
        eager: bool = False,
        say: Callable[[str], None] | None = None,
        step: Step | None = None,
        level: CommandLevel = ON_MOTORS,
    ) -> None:
        self.craft, self.task, self.senses, self.num, self.spread = craft, task, senses, num, spread
        self.gradient, self.realism = gradient, realism or Realism()
        self._task_state = layout(task, senses, self.realism).task_state
        self.physics = level_physics(level, task.dt_s) if physics is None else physics
        small_s = self.physics.dt_s / self.physics.substeps
        self.command = make_command(level, craft, small_s)
        self.generator = torch.Generator().manual_seed(seed)
        self._distribution = StartDistribution(
            craft, task, senses, self.realism, spread, self.command.hover, small_s
        )
        self._starts, self._taken = self._distribution.draw(_POOL, self.generator), 0
        self._noise, self._used = torch.zeros(0), _NOISE_STEPS
        self._begin()
        self.age = torch.zeros(num, dtype=torch.int32)
        self._reached, self._overwritten, self.terminated = (
            self.obs,
            _NOTHING,
            torch.zeros(num, dtype=torch.bool),
        )
        made = (craft, self.physics, task, senses, self.realism)
        self._silence, self._far = torch.zeros(noise_size(self.realism), num), torch.zeros(num)
        examples = (self.state, self.memory, torch.zeros(4, num), self.params, self.external, self._silence)
        if gradient and step is not None:
            home = level_physics(level, task.dt_s)
            fn = make_flight(craft, home, *made[2:], level=level, shifted=True)
            substeps = self.physics.substeps / home.substeps
            shift = torch.zeros_like(self.state)
            ours, self.compile_s = differentiable(fn, (*examples, shift), (0, 1, 2), eager=eager, say=say)
            self._run = _with_other_states(ours, make_flight(*made, step, level), substeps)
        elif gradient:
            fn = make_flight(*made, level=level)
            self._run, self.compile_s = differentiable(fn, examples, (0, 1, 2), eager=eager, say=say)
        else:
            fn = make_flight(*made, step, level)
            kernel = compile_kernel(fn, examples, eager=eager or step is not None, say=say)
            self._run, self.compile_s = kernel, kernel.compile_s  # type: ignore[assignment]

    def restart(self) -> None:
        """Start fresh flights in all lanes, with random ages so that they do not end together."""
        self._begin()
        self.age = torch.randint(0, self.task.train_steps, (self.num,), generator=self.generator).int()

    def detach(self) -> None:
        """Cut the graph: the next step starts a new one."""
        self.state, self.memory, self.obs = self.state.detach(), self.memory.detach(), self.obs.detach()

    def step(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
        """Fly one control step, after which `self.obs` is the new observation. Returns (cost, ended).

        Training flights end by the task's own rule, for example outside a wider box so that returning can be
        learned, and after task.train_steps.
        """
        cost, ended = self.fly_on(action)
        self.renew(ended)
        return cost, ended

    def fly_on(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
        """First half of `step`, without replacing ended flights: their state and observation are the last."""
        cost, _ = self._fly(action)
        # NumPy compares in a fifth of torch's time, and this is a tenth of the time of a step.
        terminated = self._far.detach().numpy() > 0.0
        self._reached, self._overwritten, self.terminated = self.obs, _NOTHING, torch.from_numpy(terminated)
        return cost, torch.from_numpy(terminated | (self.age.numpy() >= self.task.train_steps))

    def renew(self, ended: Bool[Tensor, " n"]) -> None:
        """Second half of `step`: start fresh flights in the lanes that have ended."""
        lanes = torch.from_numpy(np.flatnonzero(ended.numpy()))
        if len(lanes):
            if not self.gradient:  # `_replace` then writes in place
                self._overwritten = lanes, self.obs.index_select(1, lanes)
            self._replace(ended, lanes)

    @property
    def final_obs(self) -> Float[Tensor, "o n"]:
        """Observations after the last step, in restarted lanes those before the restart."""
        lanes, obs = self._overwritten
        return self._reached.index_copy(1, lanes, obs) if len(lanes) else self._reached

    def advance(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
        """One control step without replacing flights that end. Returns (cost, mask of ended episodes)."""
        cost, left = self._fly(action)
        return cost, left > 0.0

    def reference(self) -> Float[Tensor, "10 n"]:
        """Position [m], velocity, acceleration (SI, world) and yaw [rad] of every current goal."""
        return self.task.reference(self.external, self.task_state)

    def measured(self) -> Float[Tensor, "17 n"]:
        """The state with position, velocity and rates as measured, for classical controllers."""
        return self.task.measured(self.obs, self.state, self.external, self.task_state)

    @property
    def task_state(self) -> Float[Tensor, "k n"]:
        """The task state: a clock, a count."""
        return self.memory[self._task_state]

    def _fly(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """(cost, 1.0 where the episode has ended) of one control step."""
        results = self._run(self.state, self.memory, action, self.params, self.external, self._sensor_noise())
        self.state, self.memory, self.obs, cost, left, self._far = results
        self.age += 1
        return cost, left

    def _begin(self) -> None:
        # Copies, because `_take` returns views of the pool and lanes are later written in place.
        fresh = InitialConditions(*(values.clone() for values in self._take(self.num)))
        self.state, self.memory, self.params, self.external, self.obs = fresh

    def _replace(self, ended: Bool[Tensor, " n"], lanes: Int[Tensor, " k"]) -> None:
        fresh = self._take(len(lanes))
        if not self.gradient:  # no graph holds these tensors: writing a few lanes is cheaper than copying all
            for name in ("state", "memory", "obs", "external", *(["params"] if self.spread else [])):
                getattr(self, name).index_copy_(1, lanes, getattr(fresh, name))
        else:
            for name in ("state", "memory", "obs"):
                old = getattr(self, name)
                new = torch.zeros_like(old.detach()).index_copy(1, lanes, getattr(fresh, name))
                setattr(self, name, torch.where(ended, new, old))
            self.external = self.external.index_copy(1, lanes, fresh.external)
            if self.spread is not None:
                self.params = self.params.index_copy(1, lanes, fresh.params)
        self.age.index_fill_(0, lanes, 0)

    def _take(self, num: int) -> InitialConditions:
        """The next `num` starts, as views of the pool."""
        if num > _POOL:
            parts = [self._take(min(_POOL, num - i)) for i in range(0, num, _POOL)]
            together = InitialConditions(*(torch.cat(column, dim=1) for column in zip(*parts, strict=True)))
            return together if self.spread else together._replace(params=parts[0].params)
        if self._taken + num > _POOL:
            self._starts, self._taken = self._distribution.draw(_POOL, self.generator), 0
        chosen = slice(self._taken, self._taken + num)
        self._taken += num
        return InitialConditions(
            *(values[:, chosen] if values.shape[1] > 1 else values for values in self._starts)
        )

    def _sensor_noise(self) -> Float[Tensor, "r n"]:
        if not self._distribution.needs_noise:
            return self._silence
        if self._used == _NOISE_STEPS:
            self._noise = torch.randn(_NOISE_STEPS, len(self._silence), self.num, generator=self.generator)
            self._used = 0
        self._used += 1
        return self._noise[self._used - 1]

    def state_dict(self) -> dict[str, Any]:
        saved = (
            "state",
            "memory",
            "params",
            "external",
            "obs",
            "age",
            "_noise",
            "_used",
            "_starts",
            "_taken",
        )
        state = {name: getattr(self, name) for name in saved} | {"_starts": list(self._starts)}
        return state | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            if name == "generator":
                self.generator.set_state(value)
            else:
                setattr(self, name, InitialConditions(*value) if name == "_starts" else value)


def _with_other_states(
    ours: Callable[..., tuple[Tensor, ...]], theirs: FlightFn, substeps: float
) -> Callable[..., tuple[Tensor, ...]]:
    """A flight with the states of another engine and the gradients of ours.

    substeps: number of the other engine's steps, for which the parameters were made, in one of ours.
    """
    lags = [NAMES.index("rise"), NAMES.index("fall")]

    def run(
        state: Tensor, memory: Tensor, action: Tensor, params: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        own = params.clone()
        own[lags] = 1.0 - (1.0 - params[lags]).pow(substeps)  # lags over the longer step
        with torch.no_grad():
            here = ours(state, memory, action, own, *rest, torch.zeros_like(state))[0]
            there = theirs(state, memory, action, params, *rest)[0]
        return ours(state, memory, action, own, *rest, there - here)

    return run
