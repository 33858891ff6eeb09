"""One control step of all drones of a swarm: physics, then observation and cost, as compiled kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.compile.kernels import compile_kernel, differentiable
from sim.engines.quad.craft import Craft
from sim.engines.quad.downwash import check_downwash, downwash
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import EXTERNAL_SIZE, parameters, start
from sim.flight.command import motors_hover
from sim.flight.memory import blank_memory
from sim.flight.swarm.swarm_step import SwarmStep, Touched, straight_through
from sim.tasks.flight.observation import SENSED_SIZE
from sim.tasks.swarm.terms import SwarmSenses, Weights, make_guide, make_sense
from sim.tasks.swarm.world import NearestObjects, SwarmWorld


class SwarmEngine:
    """Kernels for `num` drones, without state.

    other_engine: engine that replaces the physics; its states get our gradients. compile_s: CPU seconds spent
    compiling. Raises ConfigError for downwash on a craft without its coefficients.
    """

    def __init__(
        self, craft: Craft, world: SwarmWorld, senses: SwarmSenses, num: int, weights: Weights, *,
        with_downwash: bool, gradient: bool, eager: bool, other_engine: SwarmStep | None,
    ) -> None:  # fmt: skip
        if with_downwash:
            check_downwash(craft)
        self.craft, self.world, self.num = craft, world, num
        self.with_downwash, self.gradient, self._other_engine = with_downwash, gradient, other_engine
        self._params, self._calm = parameters(craft, world.dt_s), torch.zeros(EXTERNAL_SIZE, num)
        if other_engine is not None:
            self._params_there = parameters(craft, other_engine.physics.dt_s / other_engine.physics.substeps)
        self._compile(senses, weights, eager)

    def _compile(self, senses: SwarmSenses, weights: Weights, eager: bool) -> None:
        step = make_step(self.craft, QuadPhysics(dt_s=self.world.dt_s))

        def fly(state: Tensor, action: Tensor, params: Tensor, external: Tensor) -> tuple[Tensor, ...]:
            return (step(state, 0.5 * action + 0.5, params, external),)

        n = self.num
        state, action = start(n), torch.zeros(4, n)
        memory = blank_memory(n, motors_hover(self.craft), senses.own)
        sense = make_sense(self.craft, self.world, senses, weights)
        near = torch.zeros(6, senses.neighbours, n), torch.zeros(2, senses.cylinders, n)
        seen = (state, memory, action, torch.zeros(6, n), *near, torch.zeros(SENSED_SIZE, n), torch.zeros(3,
                n), torch.zeros(1, n))  # fmt: skip
        self._guide = compile_kernel(make_guide(weights), (state, torch.zeros(6, n), *near), eager=eager)
        flown = (state, action, self._params, self._calm)
        if self.gradient:
            inputs = (0, 1, 3) if self.with_downwash else (0, 1)
            self._fly, fly_s = differentiable(fly, flown, inputs, eager=eager)
            self._sense, sense_s = differentiable(sense, seen, (0, 1, 2), eager=eager)
        else:
            # Without gradients our physics is not used beside another engine, so it is not compiled.
            flying = compile_kernel(fly, flown, eager=eager or self._other_engine is not None)
            kernels = flying, compile_kernel(sense, seen, eager=eager)
            self._fly, self._sense = kernels  # type: ignore[assignment]
            fly_s, sense_s = (kernel.compile_s for kernel in kernels)
        self.compile_s = fly_s + sense_s + self._guide.compile_s

    def fly(
        self, state: Float[Tensor, "17 n"], action: Float[Tensor, "4 n"], cylinders: Float[Tensor, "2 w m"]
    ) -> tuple[Float[Tensor, "17 n"], Touched]:
        """Returns (states after a control step, contacts during it)."""
        external = downwash(state, self.world.drones, self.craft) if self.with_downwash else self._calm
        there, touched = self._step_other_engine(state, action, cylinders)
        if there is None or self.gradient:
            (ours,) = self._fly(state, action, self._params, external)
            there = ours if there is None else straight_through(ours, there)
        return there, touched

    def _step_other_engine(
        self, state: Tensor, action: Tensor, cylinders: Tensor
    ) -> tuple[Tensor | None, Touched]:
        engine = self._other_engine
        if engine is None:
            return None, Touched.none(self.num)
        engine.place_cylinders(cylinders)
        moved = engine(state.detach(), 0.5 * action.detach() + 0.5, self._params_there, self._calm)
        return moved, engine.touched

    def sense(
        self, state: Tensor, memory: Tensor, action: Tensor, aim: Float[Tensor, "6 n"], near: NearestObjects,
        noise: Tensor, caution: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Returns (memory, observations (o, n), cost (n,)). caution: weight of the collision terms."""
        weight = torch.full((1, self.num), caution)
        drones, cylinders = near[:2]
        (wanted,) = self._guide(state.detach(), aim, drones, cylinders)
        after, obs, cost = self._sense(state, memory, action, aim, drones, cylinders, noise, wanted, weight)
        return after, obs, cost
