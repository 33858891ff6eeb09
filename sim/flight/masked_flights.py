"""Many flights on a device, differentiable by hand: the environment of first-order learning on a GPU.

A window of flights is recorded and walked back through, step by step. One kernel is a whole step: physics,
sensors, cost, and the restart of lanes that have ended, by mask. The host reads nothing, shapes are fixed,
and what is kept from window to window stays at its address, so that a window can be a CUDA graph. Random
numbers are drawn before a window. The last axis of a tensor counts drones, as in flights.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.compile.kernels import compile_kernel
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import Spread
from sim.flight.command import ON_MOTORS, CommandLevel, level_physics, make_command
from sim.flight.flight import FlightFn, make_flight, noise_size
from sim.flight.realism import Realism
from sim.flight.starts import InitialConditions, StartDistribution
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.protocol import FlightTask

POOL = 2**15  # starts that wait on the device
REFILL_EVERY = 64  # windows between two draws of the pool
_KEPT = ("state", "memory", "external", "obs", "age", "params")


class MaskedFlights:
    """`num` flights of one craft in one task, in windows of at most `steps` steps.

        prepare(), then begin(), step() ..., step_back() ..., settle()

    Every lane has one start waiting per window: a lane that ends twice in a window starts twice from it.
    compile_s: CPU seconds spent compiling. `state_dict` holds everything that changes, between windows.
    """

    obs: Tensor  # (o, n), the current observation

    def __init__(
        self,
        craft: Craft,
        task: FlightTask,
        senses: FlightSenses,
        num: int,
        seed: int,
        *,
        steps: int,
        device: torch.device,
        spread: Spread | None = None,
        realism: Realism | None = None,
        level: CommandLevel = ON_MOTORS,
        eager: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.num, self.device, self._task, self._spread = num, device, task, spread
        real, physics = realism or Realism(), level_physics(level, task.dt_s)
        small_s = physics.dt_s / physics.substeps
        hover = make_command(level, craft, small_s).hover
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self._distribution = StartDistribution(craft, task, senses, real, spread, hover, small_s)
        self._pool = _rows(self._distribution.draw(POOL, self.generator), spread)
        self._noise = torch.zeros(steps, noise_size(real), num, device=device)
        self._chosen = torch.zeros(num, dtype=torch.long, device=device)
        self._windows = 0
        self._begin_flights()
        self._kept = {name: getattr(self, name) for name in _KEPT}
        self._tape: list[tuple[Tensor, ...]] = []
        self.begin()
        flight = make_flight(craft, physics, task, senses, real, level=level)
        fn = _with_restarts(flight, task.train_steps, spread is not None)
        given = self._given(torch.zeros(4, num, device=device))
        forward = compile_kernel(fn, given, eager=eager, say=say)
        self._fly_one = forward
        flat = [torch.zeros_like(x) for x in (self.state, self.memory, self.obs, self.age)]
        backward = compile_kernel(_pulled(fn, len(given)), [*given, *flat], eager=eager, say=say)
        self._pull_one = backward
        self.compile_s = forward.compile_s + backward.compile_s

    def restart(self) -> None:
        """Start fresh flights in all lanes, with random ages so that they do not end together."""
        self._begin_flights()
        self.age.random_(0, self._task.train_steps, generator=self.generator)
        self.settle()

    def prepare(self) -> None:
        """Draw the random numbers of the next window."""
        if self._windows and self._windows % REFILL_EVERY == 0:
            self._pool.copy_(_rows(self._distribution.draw(POOL, self.generator), self._spread))
        self._windows += 1
        if self._distribution.needs_noise:
            self._noise.normal_(generator=self.generator)
        self._chosen.random_(0, POOL, generator=self.generator)

    def begin(self) -> None:
        """Start a window where the last one has ended."""
        for name, value in self._kept.items():
            setattr(self, name, value)
        self._fresh = self._pool.index_select(1, self._chosen)
        self._d_state, self._d_memory = torch.zeros_like(self.state), torch.zeros_like(self.memory)
        self._tape = []

    def step(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Fly one control step, after which `obs` is the new observation, in lanes that have ended that of a
        fresh flight. Returns (cost, 1.0 where a flight has ended).
        """
        given = self._given(action)
        self._tape.append(given)
        results = self._fly_one(*given)
        self.state, self.memory, self.obs, cost, self.age, ended, self.external, *params = results
        if params:
            (self.params,) = params
        return cost, ended

    def step_back(self, d_cost: Float[Tensor, " n"], d_obs: Float[Tensor, "o n"] | None = None) -> Tensor:
        """Gradient with respect to the last action that was not walked back yet, (4, n).

        d_cost, d_obs: gradients with respect to the results of its step; None: zeros, after the last step.
        """
        d_obs = torch.zeros_like(self.obs) if d_obs is None else d_obs.contiguous()
        given = self._tape.pop()
        found = self._pull_one(*given, self._d_state, self._d_memory, d_obs, d_cost)
        self._d_state, self._d_memory, d_action = found
        return d_action

    def settle(self) -> None:
        """End a window: keep where its flights are."""
        for name, kept in self._kept.items():
            if (value := getattr(self, name)) is not kept:
                kept.copy_(value)
                setattr(self, name, kept)

    def _given(self, action: Tensor) -> tuple[Tensor, ...]:
        noise = self._noise[len(self._tape)]
        return (
            self.state, self.memory, action, self.params, self.external, noise, self.age, self._fresh,
        )  # fmt: skip

    def _begin_flights(self) -> None:
        fresh = self._distribution.draw(self.num, self.generator)
        self.state, self.memory, self.external, self.obs = (
            x.clone() for x in (fresh.state, fresh.memory, fresh.external, fresh.obs)
        )
        self.params, self.age = fresh.params.clone(), torch.zeros(self.num, device=self.device)

    def state_dict(self) -> dict[str, Any]:
        kept = dict(self._kept) | {"pool": self._pool, "windows": self._windows}
        return kept | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; tensors stay where they are."""
        for name, kept in self._kept.items():
            kept.copy_(state[name])
            setattr(self, name, kept)
        self._pool.copy_(state["pool"])
        self._windows = int(state["windows"])
        self.generator.set_state(state["generator"])


def _rows(fresh: InitialConditions, spread: Spread | None) -> Float[Tensor, "k n"]:
    """What a fresh flight replaces, in one tensor."""
    varied = [fresh.params] if spread is not None else []
    return torch.cat([fresh.state, fresh.memory, fresh.obs, fresh.external, *varied])


def _with_restarts(flight: FlightFn, train_steps: int, varied: bool) -> FlightFn:
    """flight(state, memory, action, params, external, noise, age, fresh) -> (state, memory, obs, cost, age,
    ended, external, and if `varied` params), with fresh flights in lanes that have ended.
    """

    def step(
        state: Tensor, memory: Tensor, action: Tensor, params: Tensor, external: Tensor, noise: Tensor,
        age: Tensor, fresh: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        flown = flight(state, memory, action, params, external, noise)
        cost, far, older = flown[3], flown[5], age + 1.0
        ended = (far > 0.0) | (older >= train_steps)
        replaced = [*flown[:3], external, *([params] if varied else [])]
        new = torch.split(fresh, [len(x) for x in replaced])
        now = [torch.where(ended, there, here) for there, here in zip(new, replaced, strict=True)]
        over = ended.to(age.dtype)
        return *now[:3], cost, older * (1.0 - over), over, *now[3:]

    return step


def _pulled(fn: FlightFn, count: int) -> FlightFn:
    """Gradients with respect to state, memory and action, from the `count` inputs of a step and those with
    respect to its state, memory, observation and cost. The step is computed again instead of being stored.
    """

    def pull(*inputs: Tensor) -> tuple[Tensor, ...]:
        def of(state: Tensor, memory: Tensor, action: Tensor) -> tuple[Tensor, ...]:
            return tuple(fn(state, memory, action, *inputs[3:count])[:4])

        grads: tuple[Tensor, ...] = torch.func.vjp(of, *inputs[:3])[1](tuple(inputs[count:]))
        return grads

    return pull
