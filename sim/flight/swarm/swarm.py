"""Worlds with many drones, differentiable, for training and measuring a swarm's policy.

The last axis of a tensor counts drones, those of one world next to each other. One step: physics (compiled)
-> nearest drones and cylinders (torch) -> observation and cost (compiled). Our physics has no contact forces:
a drone that touched something flies on, and its flight has failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import POS, RATE, VEL
from sim.flight.swarm.collision_replay import CollisionReplay, stacked
from sim.flight.swarm.swarm_engine import SwarmEngine
from sim.flight.swarm.swarm_state import Contacts, SwarmState
from sim.flight.swarm.swarm_step import SwarmStep, Touched
from sim.flight.swarm.world_pool import POOL, WorldPool
from sim.tasks.flight.observation import SENSED_SIZE
from sim.tasks.swarm.scenarios import SCENARIOS, Setup, check_room, draw, goal_at
from sim.tasks.swarm.terms import SwarmSenses, Weights
from sim.tasks.swarm.world import NearestObjects, SwarmWorld, check_world, nearest

_BEYOND_M = 1.0  # training restarts drones that are this far beyond a wall
_TUMBLING_RAD_S = 40.0  # ... or that rotate faster


@dataclass(frozen=True, slots=True)
class TrainingRules:
    """Rules of training: how worlds are drawn and replaced."""

    least_density: float = 0.0  # densities are drawn between this and world.density
    seconds: float = 8.0  # length of an episode
    replay: float = 0.5  # share of episodes that begin 1.5 s before an earlier collision
    replay_s: float = 3.0  # ... and their length


class Swarm:
    """`worlds` worlds in parallel. gradient: keep the graph through the dynamics.

    A curriculum raises `caution` (0 ... 1), the weight of the collision terms, and `crowding` (0 ... 1),
    which scales the densities of new worlds, of which up to 60 are drawn ahead. `now` holds the state,
    `contacts` the drones that touch something, `aim` (6, n) positions [m] and velocities [m/s] of the goals.
    `state_dict` holds everything that changes.
    """

    obs: Tensor  # (o, n)
    now: SwarmState
    near: NearestObjects
    contacts: Contacts
    aim: Tensor

    def __init__(
        self, craft: Craft, world: SwarmWorld, senses: SwarmSenses, worlds: int, seed: int, *,
        scenarios: tuple[str, ...] = SCENARIOS, weights: Weights | None = None,
        training: TrainingRules | None = None,
        with_downwash: bool = False, gradient: bool = True, eager: bool = False,
        first_scenario: int = 0, other_engine: SwarmStep | None = None, crowding: float = 1.0,
    ) -> None:  # fmt: skip
        check_world(world)
        check_room(world, scenarios)
        self.world, self.senses, self.worlds, self.training = world, senses, worlds, training
        self.num = worlds * world.drones
        self.caution, self.crowding = 1.0, crowding
        self.generator, self.replay = torch.Generator().manual_seed(seed), CollisionReplay()

        def drawn(num: int) -> Setup:
            if training is None:
                return draw(world, scenarios, num, self.generator, first=first_scenario)
            least = training.least_density
            most = least + self.crowding * (world.density - least)
            return draw(world, scenarios, num, self.generator, (least, most))

        self._pool = WorldPool(drawn, POOL if training else worlds, POOL if training else 0)
        self.engine = SwarmEngine(
            craft, world, senses, self.num, Weights() if weights is None else weights,
            with_downwash=with_downwash, gradient=gradient, eager=eager, other_engine=other_engine,
        )  # fmt: skip
        self.restart()

    @property
    def craft(self) -> Craft:
        return self.engine.craft

    @property
    def compile_s(self) -> float:
        """CPU seconds spent compiling."""
        return self.engine.compile_s

    def restart(self) -> None:
        """Start fresh worlds; in training with random ages, so that they do not end together."""
        steps = self._most_steps
        self.now = SwarmState.fresh(self._pool.take(self.worlds), self.craft, self.senses.own, steps)
        if self.training:
            self.now.since = torch.randint(0, steps, (self.worlds,), generator=self.generator)
        self._find()
        self.contacts = Contacts.of(Touched.none(self.num), self.near, self.world)
        self._look(self.idle)

    def detach(self) -> None:
        """Cut the graph: the next step starts a new one."""
        self.now.state, self.now.memory = self.now.state.detach(), self.now.memory.detach()
        self.obs = self.obs.detach()

    def step(self, action: Float[Tensor, "4 n"]) -> tuple[Float[Tensor, " n"], Bool[Tensor, " n"]]:
        """One control step of training. Returns (cost, mask of restarted drones).

        A drone that touches something, tumbles or leaves is restarted; a world whose time is over is
        replaced.
        """
        self._advance(action)
        collided = self.contacts.collided
        fallen = self._fallen()
        over = self.now.since >= self.now.until
        replaced = fallen | over.repeat_interleave(self.world.drones)
        if replaced.any():
            action = torch.where(replaced, self.idle, action)
            self._put_back(fallen)
            if over.any():
                self._begin(over.nonzero()[:, 0])
            self._find()
        cost = self._look(action)
        if self.training and self.training.replay > 0.0 and self.caution >= 1.0:
            # Only late in training: early collisions are frequent, and nothing can be learned from them.
            self.replay.watch(self.now.moments(), self.now.since, collided.view(self.worlds, -1).any(1))
        return cost, replaced

    def advance(self, action: Float[Tensor, "4 n"]) -> None:
        """One control step of a measured episode, in which no drone is restarted."""
        self._advance(action)
        self._look(action)

    @property
    def touching(self) -> Bool[Tensor, " n"]:
        """Drones that touched another drone or a cylinder in the last step."""
        return self.contacts.collided

    @property
    def idle(self) -> Float[Tensor, "4 n"]:
        """The action that hovers."""
        return torch.full((4, self.num), 2.0 * self.craft.hover_speed - 1.0)

    @property
    def _most_steps(self) -> int:
        return round((self.training.seconds if self.training else self.world.seconds) / self.world.dt_s)

    def _advance(self, action: Tensor) -> None:
        now = self.now
        now.state, touched = self.engine.fly(now.state, action, now.cylinders)
        now.age, now.since = now.age + 1, now.since + 1
        self._find()
        self.contacts = Contacts.of(touched, self.near, self.world)

    def _fallen(self) -> Bool[Tensor, " n"]:
        """Drones that touch something, tumble, or went far through a wall."""
        state = self.now.state.detach()
        fallen = self.contacts.collided | self.contacts.floor | self.world.outside(state[POS], _BEYOND_M)
        return fallen | ~(state[RATE].abs().amax(0) < _TUMBLING_RAD_S)

    def _find(self) -> None:
        """Look up the nearest drones and cylinders of every drone."""
        now, senses = self.now, self.senses
        motion = torch.cat([now.state[POS], now.state[VEL]]).detach()
        self.near = nearest(motion, now.cylinders, self.world.drones, senses.neighbours, senses.cylinders)

    def _look(self, action: Tensor) -> Tensor:
        """Set the observation of every drone; returns the cost."""
        world, now = self.world, self.now
        self.aim = torch.cat(goal_at(now.goal, (now.age * world.dt_s).repeat_interleave(world.drones)))
        noise = torch.zeros(SENSED_SIZE, self.num)
        if self.senses.noise:
            noise = torch.randn(SENSED_SIZE, self.num, generator=self.generator)
        now.memory, self.obs, cost = self.engine.sense(
            now.state, now.memory, action, self.aim, self.near, noise, float(self.caution)
        )
        return cost

    def _put_back(self, columns: Bool[Tensor, " n"]) -> None:
        """Restart these drones, hovering at their start positions at random heights."""
        world, height = self.world, torch.rand(self.num, generator=self.generator)
        height_m = (world.low_m + (world.high_m - world.low_m) * height).unsqueeze(0)
        self.now.hover_at(columns, torch.cat([self.now.home[0:2], height_m]), self.craft, self.senses.own)

    def _begin(self, indices: Tensor) -> None:
        """Start new worlds, or situations before a collision, in place of these."""
        assert self.training is not None
        now = self.now
        again = torch.rand(len(indices), generator=self.generator) < self.training.replay
        moments = [self.replay.take(self.generator) for _ in range(int(again.sum())) if len(self.replay)]
        old, new = indices[: len(moments)], indices[len(moments) :]
        if len(old):
            now.put(old, stacked(moments))
        if len(new):
            now.put_fresh(new, self._pool.take(len(new)), self.craft, self.senses.own)
        now.since = now.since.index_fill(0, indices, 0)
        short = round(self.training.replay_s / self.world.dt_s)
        now.until = now.until.index_fill(0, new, self._most_steps).index_fill(0, old, short)

    def state_dict(self) -> dict[str, Any]:
        state = {item.name: getattr(self.now, item.name) for item in fields(self.now)}
        return state | {
            "obs": self.obs,
            "contacts": list(self.contacts),
            "caution": self.caution,
            "crowding": self.crowding,
            "_taken": self._pool.taken,
            "_pool": list(self._pool.setup),
            "replay": self.replay.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.now = SwarmState(**{item.name: state[item.name] for item in fields(SwarmState)})
        self.obs, self.contacts = state["obs"], Contacts(*state["contacts"])
        self.caution, self.crowding = state["caution"], state["crowding"]
        self._pool.setup, self._pool.taken = Setup(*state["_pool"]), state["_taken"]
        self.replay.load_state_dict(state["replay"])
        self.generator.set_state(state["generator"])
