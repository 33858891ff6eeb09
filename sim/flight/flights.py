"""Many flights at once, with gradients: what a learner trains in when it differentiates through the dynamics.

Columns are drones: observations (o, n), actions (4, n). A flight that ends is replaced by a fresh one in the
same step, and no gradient crosses from the one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sim.compile.kernels import compile_kernel, differentiable
from sim.engines.quad.craft import Craft
from sim.engines.quad.dynamics import QuadPhysics, Step
from sim.engines.quad.layout import NAMES, Spread, parameters
from sim.flight.command import ON_MOTORS, CommandLevel, level_physics, make_command
from sim.flight.flight import FlightFn, first_sight, make_flight, noise_size
from sim.flight.memory import layout
from sim.flight.realism import Realism
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.protocol import FlightTask

_POOL = 4096  # starts drawn at a time
_NOISE_STEPS = 32  # steps of sensor noise drawn at a time
_NOTHING = (torch.zeros(0, dtype=torch.long), torch.zeros(0, 0))  # no lane, and what was seen in it


class Fresh(NamedTuple):
    """Flights that are about to begin; columns are drones."""

    state: Tensor
    memory: Tensor
    params: Tensor
    external: Tensor
    obs: Tensor


class Flights:
    """`num` flights of one craft in one task. `gradient`: keep the way back through the dynamics. `level`: of
    the actions, see command.py.

    `step`: another engine's, in the place of the physics; it runs eagerly. With gradient the states are that
    engine's, and the gradients those of our physics at the same states and commands. `compile_s`: CPU seconds
    spent compiling, 0 when the kernels were on disk. Everything that changes is in `state_dict`.
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
        self._hears = senses.noise or self.realism.noise_size > 0
        self.physics = level_physics(level, task.dt_s) if physics is None else physics
        self.command = make_command(level, craft, self.physics.dt_s / self.physics.substeps)
        self.generator = torch.Generator().manual_seed(seed)
        self._starts, self._taken = self._draw_pool(), 0
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
            self._run = _led(ours, make_flight(*made, step, level), substeps)
        elif gradient:
            fn = make_flight(*made, level=level)
            self._run, self.compile_s = differentiable(fn, examples, (0, 1, 2), eager=eager, say=say)
        else:
            fn = make_flight(*made, step, level)
            kernel = compile_kernel(fn, examples, eager=eager or step is not None, say=say)
            self._run, self.compile_s = kernel, kernel.compile_s  # type: ignore[assignment]

    def restart(self) -> None:
        """Fresh flights everywhere, of ages as if they had been going on for long: no lane ends with the
        others.
        """
        self._begin()
        self.age = torch.randint(0, self.task.train_steps, (self.num,), generator=self.generator).int()

    def detach(self) -> None:
        """Forget the way back: the next step starts a new graph."""
        self.state, self.memory, self.obs = self.state.detach(), self.memory.detach(), self.obs.detach()

    def step(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
        """Fly one control step; `self.obs` is what is seen after it. Returns (cost, ended).

        Training flights end where the task says, for example in a wider box so that returning can be learned,
        and after task.train_steps.
        """
        cost, ended = self.fly_on(action)
        self.renew(ended)
        return cost, ended

    def fly_on(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
        """The first half of `step`: state and observation are those that the action led to, for ended lanes
        too.
        """
        cost, _ = self._fly(action)
        # NumPy compares numbers in a fifth of torch's time, and this is a tenth of what a step costs.
        terminated = self._far.detach().numpy() > 0.0
        self._reached, self._overwritten, self.terminated = self.obs, _NOTHING, torch.from_numpy(terminated)
        return cost, torch.from_numpy(terminated | (self.age.numpy() >= self.task.train_steps))

    def renew(self, ended: Bool[Tensor, " n"]) -> None:
        """The second half: fresh flights in the lanes that have ended."""
        rows = torch.from_numpy(np.flatnonzero(ended.numpy()))
        if len(rows):
            if not self.gradient:  # `_replace` then writes in place
                self._overwritten = rows, self.obs.index_select(1, rows)
            self._replace(ended, rows)

    @property
    def final_obs(self) -> Float[Tensor, "o n"]:
        """Observations after the last step, in restarted lanes those before the restart."""
        rows, columns = self._overwritten
        return self._reached.index_copy(1, rows, columns) if len(rows) else self._reached

    def advance(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
        """One control step without replacing flights that end. Returns (cost, has the episode ended)."""
        cost, left = self._fly(action)
        return cost, left > 0.0

    def reference(self) -> Float[Tensor, "10 n"]:
        """Position, velocity, acceleration and yaw of every goal now."""
        return self.task.reference(self.external, self.task_state)

    def measured(self) -> Float[Tensor, "17 n"]:
        """The state as far as sensors say it, for classical controllers: their position, velocity and
        rates.
        """
        return self.task.measured(self.obs, self.state, self.external, self.task_state)

    @property
    def task_state(self) -> Float[Tensor, "k n"]:
        """The task's own rows: a clock, a count."""
        return self.memory[self._task_state]

    def _fly(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """(cost, 1.0 where the episode has ended) of one control step."""
        results = self._run(self.state, self.memory, action, self.params, self.external, self._sensor_noise())
        self.state, self.memory, self.obs, cost, left, self._far = results
        self.age += 1
        return cost, left

    def _begin(self) -> None:
        fresh = Fresh(
            *(rows.clone() for rows in self._take(self.num))
        )  # the pool's own memory is not to be written
        self.state, self.memory, self.params, self.external, self.obs = fresh

    def _replace(self, ended: Bool[Tensor, " n"], rows: Int[Tensor, " k"]) -> None:
        fresh = self._take(len(rows))
        if (
            not self.gradient
        ):  # nobody else holds these tensors: writing a few columns is cheaper than copying all
            for name in ("state", "memory", "obs", "external", *(["params"] if self.spread else [])):
                getattr(self, name).index_copy_(1, rows, getattr(fresh, name))
        else:
            for name in ("state", "memory", "obs"):
                old = getattr(self, name)
                new = torch.zeros_like(old.detach()).index_copy(1, rows, getattr(fresh, name))
                setattr(self, name, torch.where(ended, new, old))
            self.external = self.external.index_copy(1, rows, fresh.external)
            if self.spread is not None:
                self.params = self.params.index_copy(1, rows, fresh.params)
        self.age.index_fill_(0, rows, 0)

    def _take(self, num: int) -> Fresh:
        """The next `num` starts, as views of the pool."""
        if num > _POOL:
            parts = [self._take(min(_POOL, num - i)) for i in range(0, num, _POOL)]
            together = Fresh(*(torch.cat(column, dim=1) for column in zip(*parts, strict=True)))
            return together if self.spread else together._replace(params=parts[0].params)
        if self._taken + num > _POOL:
            self._starts, self._taken = self._draw_pool(), 0
        chosen = slice(self._taken, self._taken + num)
        self._taken += num
        return Fresh(*(rows[:, chosen] if rows.shape[1] > 1 else rows for rows in self._starts))

    def _draw_pool(self) -> Fresh:
        """Starts and what is seen at them, all at once: one by one, drawing and looking would cost more than
        flying.
        """
        unit = torch.rand(self.task.start_numbers, _POOL, generator=self.generator).clamp(1e-7, 1.0 - 1e-7)
        state, external = self.task.start(self.craft, unit)
        small_s = self.physics.dt_s / self.physics.substeps
        if self.spread is None:
            params = parameters(self.craft, small_s)
        else:
            spread = torch.rand(9, _POOL, generator=self.generator) * 2.0 - 1.0
            params = parameters(self.craft, small_s, _POOL, self.spread, spread)
        noise = (
            torch.randn(noise_size(self.realism), _POOL, generator=self.generator) if self._hears else None
        )
        memory, obs = first_sight(
            state, external, noise, self.command.hover, self.task, self.senses, self.realism
        )
        return Fresh(state, memory, params, external, obs)

    def _sensor_noise(self) -> Float[Tensor, "r n"]:
        if not self._hears:
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
                setattr(self, name, Fresh(*value) if name == "_starts" else value)


def _led(
    ours: Callable[..., tuple[Tensor, ...]], theirs: FlightFn, substeps: float
) -> Callable[..., tuple[Tensor, ...]]:
    """Our flight, moved after every step to the state that the other engine comes to: its states, our
    gradients.

    substeps: how many of its steps, for which the parameters were made, take one of ours.
    """
    lags = [NAMES.index("rise"), NAMES.index("fall")]

    def run(
        state: Tensor, memory: Tensor, action: Tensor, params: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        own = params.clone()
        own[lags] = 1.0 - (1.0 - params[lags]).pow(substeps)  # shares of the way in a longer step
        with torch.no_grad():
            here = ours(state, memory, action, own, *rest, torch.zeros_like(state))[0]
            there = theirs(state, memory, action, params, *rest)[0]
        return ours(state, memory, action, own, *rest, there - here)

    return run
