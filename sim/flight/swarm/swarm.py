"""Worlds full of drones, with gradients: what a learner of swarms trains in, and what its policy is measured
in.

Columns are drones, those of one world side by side. One step: physics (compiled) -> who is near (torch) ->
observation and cost (compiled). Nothing bounces: a drone that touched something flies on, and its flight has
failed. `elsewhere` is another engine in the place of the physics, where it does bounce: its states, our
gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.compile.kernels import compile_kernel, differentiable
from sim.engines.quad.craft import Craft
from sim.engines.quad.downwash import check_downwash, downwash
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.rows import EXTERNAL_ROWS, POS, RATE, ROTOR, VEL, parameters, start
from sim.flight.command import motors_hover
from sim.flight.flight import SEEN_ROWS, blank_memory
from sim.flight.swarm.collision_replay import CollisionReplay, World, stacked
from sim.flight.swarm.swarm_step import SwarmStep, Touched, led
from sim.tasks.swarm.scenarios import GOAL_ROWS, SCENARIOS, Setup, check_room, draw, goal_at
from sim.tasks.swarm.terms import SwarmSenses, Weights, make_guide, make_sense
from sim.tasks.swarm.world import SwarmWorld, check_world, nearest

_POOL = 256  # worlds drawn at a time
_BEYOND_M = 1.0  # training puts a drone back that went this far through a wall
_TUMBLING_RAD_S = 40.0  # ... or that spins faster


@dataclass(frozen=True, slots=True)
class Practice:
    """How worlds follow one another in training."""

    least_density: float = 0.0  # worlds are drawn between this and world.density
    seconds: float = 8.0  # of a world
    replay: float = 0.5  # share of worlds that begin 1.5 s before a collision that happened
    replay_s: float = 3.0  # ... and how long they last


class Swarm:
    """`worlds` worlds side by side. `gradient`: keep the way back through the dynamics.

    `caution` (0 ... 1) weighs the collision terms, `crowding` (0 ... 1) the densities that new worlds are
    drawn from: a curriculum turns them up. Everything that changes is in `state_dict`.
    """

    obs: Tensor  # (o, n)

    def __init__(
        self, craft: Craft, world: SwarmWorld, senses: SwarmSenses, worlds: int, seed: int, *,
        scenarios: tuple[str, ...] = SCENARIOS, weights: Weights | None = None, practice: Practice | None = None,
        with_downwash: bool = False, gradient: bool = True, eager: bool = False,
        first_scenario: int = 0, elsewhere: SwarmStep | None = None,
    ) -> None:  # fmt: skip
        check_world(world)
        check_room(world, scenarios)
        if with_downwash:
            check_downwash(craft)
        self.craft, self.world, self.senses, self.worlds, self.scenarios = (
            craft,
            world,
            senses,
            worlds,
            scenarios,
        )
        self.practice, self.with_downwash, self.gradient = practice, with_downwash, gradient
        self.num, self._first = worlds * world.drones, first_scenario
        self.caution = self.crowding = 1.0
        self.generator = torch.Generator().manual_seed(seed)
        self._params, self._elsewhere = parameters(craft, world.dt_s), elsewhere
        if elsewhere is not None:
            self._params_there = parameters(craft, elsewhere.physics.dt_s / elsewhere.physics.substeps)
        self._still = torch.zeros(EXTERNAL_ROWS, self.num)
        self._pool, self._taken, self.replay = self._draw(_POOL if practice else worlds), 0, CollisionReplay()
        self._compile(Weights() if weights is None else weights, eager)
        self.restart()

    def _compile(self, weights: Weights, eager: bool) -> None:
        """Physics and senses as kernels; `compile_s`: CPU seconds that it took."""
        step = make_step(self.craft, QuadPhysics(dt_s=self.world.dt_s))

        def fly(state: Tensor, action: Tensor, params: Tensor, external: Tensor) -> tuple[Tensor, ...]:
            return (step(state, 0.5 * action + 0.5, params, external),)

        n, senses = self.num, self.senses
        state, action, memory = (
            start(n),
            torch.zeros(4, n),
            blank_memory(n, motors_hover(self.craft), senses.own),
        )
        sense = make_sense(self.craft, self.world, senses, weights)
        near = torch.zeros(6, senses.neighbours, n), torch.zeros(2, senses.cylinders, n)
        seen = (state, memory, action, torch.zeros(6, n), *near, torch.zeros(SEEN_ROWS, n), torch.zeros(3, n),
                torch.zeros(1, n))  # fmt: skip
        self._guide = compile_kernel(make_guide(weights), (state, torch.zeros(6, n), *near), eager=eager)
        flown = (state, action, self._params, self._still)
        if self.gradient:
            self._fly, fly_s = differentiable(
                fly, flown, (0, 1, 3) if self.with_downwash else (0, 1), eager=eager
            )
            self._sense, sense_s = differentiable(sense, seen, (0, 1, 2), eager=eager)
        else:
            # Where another engine flies and nobody asks for gradients, ours has nothing to do.
            flying = compile_kernel(fly, flown, eager=eager or self._elsewhere is not None)
            kernels = flying, compile_kernel(sense, seen, eager=eager)
            self._fly, self._sense = kernels  # type: ignore[assignment]
            fly_s, sense_s = (kernel.compile_s for kernel in kernels)
        self.compile_s = fly_s + sense_s + self._guide.compile_s

    def restart(self) -> None:
        """Fresh worlds everywhere; in training of ages as if they had been going on for long."""
        setup = self._take(self.worlds)
        n = self.num
        self.cylinders, self.scenario = setup.cylinders, setup.scenario
        self.home, self.goal = setup.start_m.reshape(3, n), setup.goal.reshape(GOAL_ROWS, n)
        self.state = self._resting(self.home)
        self.memory = blank_memory(n, motors_hover(self.craft), self.senses.own)
        self.age = torch.zeros(self.worlds, dtype=torch.long)  # steps since the episode began
        self.since = torch.zeros(self.worlds, dtype=torch.long)  # steps since it was put here
        self.until = torch.full_like(self.since, self._most_steps)  # steps that it lasts
        if self.practice:
            self.since = torch.randint(0, self._most_steps, (self.worlds,), generator=self.generator)
        self._find()
        self._judge(Touched.nobody(n))
        self._look(self._idle)

    def detach(self) -> None:
        """Forget the way back: the next step starts a new graph."""
        self.state, self.memory, self.obs = self.state.detach(), self.memory.detach(), self.obs.detach()

    def step(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
        """One control step of training; returns (cost, put back).

        Who touches something, tumbles or leaves begins again; worlds whose time is over are replaced.
        """
        self._advance(action)
        touched = self.touching
        fallen = touched | self.floored | self.world.outside(self.state[POS].detach(), _BEYOND_M)
        fallen |= ~(self.state[RATE].detach().abs().amax(0) < _TUMBLING_RAD_S)
        over = self.since >= self.until
        replaced = fallen | over.repeat_interleave(self.world.drones)
        if replaced.any():
            action = torch.where(replaced, self._idle, action)
            self._put_back(fallen)
            if over.any():
                self._begin(over.nonzero()[:, 0])
            self._find()
        cost = self._look(action)
        if self.practice and self.practice.replay > 0.0 and self.caution >= 1.0:
            # Not before: collisions of those who cannot fly yet are many, and nothing can be learned from
            # them.
            self.replay.watch(self._moments(), self.since, touched.view(self.worlds, -1).any(1))
        return cost, replaced

    def advance(self, action: Float[Tensor, "4 n"]) -> None:
        """One control step of an episode that is measured: nobody is put back."""
        self._advance(action)
        self._look(action)

    @property
    def _most_steps(self) -> int:
        return round((self.practice.seconds if self.practice else self.world.seconds) / self.world.dt_s)

    @property
    def _idle(self) -> Float[Tensor, "4 n"]:
        return torch.full((4, self.num), 2.0 * self.craft.hover_speed - 1.0)

    def _advance(self, action: Tensor) -> None:
        external = downwash(self.state, self.world.drones, self.craft) if self.with_downwash else self._still
        there, touched = self._flown_elsewhere(action)
        if there is None or self.gradient:
            (ours,) = self._fly(self.state, action, self._params, external)
            there = ours if there is None else led(ours, there)
        self.state = there
        self.age, self.since = self.age + 1, self.since + 1
        self._find()
        self._judge(touched)

    def _flown_elsewhere(self, action: Tensor) -> tuple[Tensor | None, Touched]:
        """The state that the other engine comes to, and who met what on the way; None where there is none."""
        engine = self._elsewhere
        if engine is None:
            return None, Touched.nobody(self.num)
        engine.stand(self.cylinders)
        state = engine(self.state.detach(), 0.5 * action.detach() + 0.5, self._params_there, self._still)
        return state, engine.touched

    def _find(self) -> None:
        """Who is near whom."""
        motion = torch.cat([self.state[POS], self.state[VEL]]).detach()
        world, senses = self.world, self.senses
        self.near = nearest(motion, self.cylinders, world.drones, senses.neighbours, senses.cylinders)

    def _judge(self, touched: Touched) -> None:
        """Who touches what: by the distance between middles, and where things bounce, by contact too."""
        self.hit_drone = touched.drone | (self.near.drone_gap_m < self.world.touch_drone_m)
        self.hit_cylinder = touched.cylinder | (self.near.cylinder_gap_m < self.world.touch_cylinder_m)
        self.touching, self.floored = self.hit_drone | self.hit_cylinder, touched.floor

    def _look(self, action: Tensor) -> Tensor:
        """Observation and cost of where everybody is now."""
        world, senses = self.world, self.senses
        self.aim = torch.cat(goal_at(self.goal, (self.age * world.dt_s).repeat_interleave(world.drones)))
        noise = torch.randn(SEEN_ROWS, self.num, generator=self.generator) if senses.noise else self._silence
        caution = torch.full((1, self.num), float(self.caution))
        drones, cylinders = self.near[:2]
        (wanted,) = self._guide(self.state.detach(), self.aim, drones, cylinders)
        self.memory, self.obs, cost = self._sense(
            self.state, self.memory, action, self.aim, drones, cylinders, noise, wanted, caution
        )
        return cost

    @property
    def _silence(self) -> Tensor:
        return torch.zeros(SEEN_ROWS, self.num)

    def _resting(self, position_m: Float[Tensor, "3 n"]) -> Float[Tensor, "17 n"]:
        state = start(position_m.shape[1])
        state[POS], state[ROTOR] = position_m, self.craft.hover_speed
        return state

    def _put_back(self, columns: Bool[Tensor, " n"]) -> None:
        """These drones hover again above or below where they began."""
        world, height = self.world, torch.rand(self.num, generator=self.generator)
        home = torch.cat([self.home[0:2], (world.low_m + (world.high_m - world.low_m) * height).unsqueeze(0)])
        blank = blank_memory(self.num, motors_hover(self.craft), self.senses.own)
        self.state = torch.where(columns, self._resting(home), self.state)
        self.memory = torch.where(columns, blank, self.memory)

    def _begin(self, rows: Tensor) -> None:
        """New worlds here, or the moments before a collision."""
        assert self.practice is not None
        again = torch.rand(len(rows), generator=self.generator) < self.practice.replay
        moments = [self.replay.take(self.generator) for _ in range(int(again.sum())) if len(self.replay)]
        old, new = rows[: len(moments)], rows[len(moments) :]
        if len(old):
            self._write(old, stacked(moments))
        if len(new):
            setup = self._take(len(new))
            drones = self.world.drones
            blank = blank_memory(len(new) * drones, motors_hover(self.craft), self.senses.own)
            self._write(new, {
                "state": self._resting(setup.start_m.flatten(1)).view(-1, len(new), drones),
                "memory": blank.view(-1, len(new), drones), "home": setup.start_m, "goal": setup.goal,
                "cylinders": setup.cylinders, "age": torch.zeros(1, len(new), 1, dtype=torch.long),
            })  # fmt: skip
            self.scenario = self.scenario.index_copy(0, new, setup.scenario)
        self.since = self.since.index_fill(0, rows, 0)
        short = round(self.practice.replay_s / self.world.dt_s)
        self.until = self.until.index_fill(0, new, self._most_steps).index_fill(0, old, short)

    def _moments(self) -> World:
        """All that a world needs to go on from here."""
        shape = (-1, self.worlds, self.world.drones)
        found = {
            name: getattr(self, name).detach().view(shape) for name in ("state", "memory", "home", "goal")
        }
        return found | {"cylinders": self.cylinders, "age": self.age.view(1, -1, 1)}

    def _write(self, rows: Tensor, worlds: World) -> None:
        """Put these worlds into these places; no gradient crosses."""
        for name, new in worlds.items():
            old = getattr(self, name)
            shape = (1, -1, 1) if name == "age" else (old.shape[0], self.worlds, -1)
            changed = old.reshape(shape)
            mask = torch.zeros(self.worlds, dtype=torch.bool).index_fill(0, rows, value=True).view(1, -1, 1)
            filled = torch.zeros_like(changed.detach()).index_copy(1, rows, new)
            setattr(self, name, torch.where(mask, filled, changed).view(old.shape))

    def _take(self, num: int) -> Setup:
        """The next worlds of the pool."""
        if self._taken + num > self._pool.start_m.shape[1]:
            self._pool, self._taken = self._draw(max(_POOL, num) if self.practice else num), 0
        chosen = slice(self._taken, self._taken + num)
        self._taken += num
        pool = self._pool
        cylinders, start_m, goal = (rows[:, chosen] for rows in (pool.cylinders, pool.start_m, pool.goal))
        return Setup(cylinders, start_m, goal, pool.scenario[chosen])

    def _draw(self, num: int) -> Setup:
        if self.practice is None:
            return draw(self.world, self.scenarios, num, self.generator, first=self._first)
        least = self.practice.least_density
        most = least + self.crowding * (self.world.density - least)
        return draw(self.world, self.scenarios, num, self.generator, (least, most))

    def state_dict(self) -> dict[str, Any]:
        kept = (
            "state",
            "memory",
            "obs",
            "cylinders",
            "scenario",
            "home",
            "goal",
            "age",
            "since",
            "until",
            "touching",
            "caution",
            "crowding",
            "_taken",
        )
        state = {name: getattr(self, name) for name in kept}
        return state | {"_pool": list(self._pool), "replay": self.replay.state_dict(),
                        "generator": self.generator.get_state()}  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            if name == "generator":
                self.generator.set_state(value)
            elif name == "replay":
                self.replay.load_state_dict(value)
            else:
                setattr(self, name, Setup(*value) if name == "_pool" else value)
