"""State of several worlds of drones, and contacts in it.

The last axis of a tensor (..., n) counts drones, those of one world next to each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int64
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import POS, ROTOR, start
from sim.flight.command import motors_hover
from sim.flight.memory import blank_memory
from sim.flight.swarm.collision_replay import World
from sim.flight.swarm.swarm_step import Touched
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.swarm.scenarios import GOAL_SIZE, Setup
from sim.tasks.swarm.world import NearestObjects, SwarmWorld

_OF_DRONES = ("state", "memory", "home", "goal")


@dataclass
class SwarmState:
    """w worlds of d drones; n = w d. Every field is replaced, never written in place."""

    state: Float[Tensor, "17 n"]
    memory: Float[Tensor, "k n"]
    home: Float[Tensor, "3 n"]  # start positions [m, world]
    goal: Float[Tensor, "g n"]
    cylinders: Float[Tensor, "2 w m"]
    scenario: Int64[Tensor, " w"]
    age: Int64[Tensor, " w"]  # steps since the episode began
    since: Int64[Tensor, " w"]  # steps since the world was started here, maybe from a replayed situation
    until: Int64[Tensor, " w"]  # value of `since` at which the world is replaced

    @classmethod
    def fresh(cls, setup: Setup, craft: Craft, own: FlightSenses, steps: int) -> SwarmState:
        """Worlds with hovering drones at their starts."""
        worlds = setup.start_m.shape[1]
        home = setup.start_m.reshape(3, -1)
        zero = torch.zeros(worlds, dtype=torch.long)
        return cls(
            resting(home, craft), blank_memory(home.shape[1], motors_hover(craft), own), home,
            setup.goal.reshape(GOAL_SIZE, -1), setup.cylinders, setup.scenario, zero, zero,
            torch.full_like(zero, steps),
        )  # fmt: skip

    @property
    def worlds(self) -> int:
        return len(self.age)

    def moments(self) -> World:
        """All that is needed to continue the worlds from here."""
        found = {
            name: getattr(self, name).detach().view(-1, self.worlds, self._drones) for name in _OF_DRONES
        }
        return found | {"cylinders": self.cylinders, "age": self.age.view(1, -1, 1)}

    def put(self, indices: Int64[Tensor, " k"], worlds: World) -> None:
        """Replace the worlds at these indices; no gradient flows between old and new."""
        for name, new in worlds.items():
            old = getattr(self, name)
            shape = (1, -1, 1) if name == "age" else (old.shape[0], self.worlds, -1)
            changed = old.reshape(shape)
            mask = (
                torch.zeros(self.worlds, dtype=torch.bool).index_fill(0, indices, value=True).view(1, -1, 1)
            )
            filled = torch.zeros_like(changed.detach()).index_copy(1, indices, new)
            setattr(self, name, torch.where(mask, filled, changed).view(old.shape))

    def put_fresh(self, indices: Int64[Tensor, " k"], setup: Setup, craft: Craft, own: FlightSenses) -> None:
        """Start new worlds at these indices."""
        fresh = SwarmState.fresh(setup, craft, own, 0)
        self.put(indices, fresh.moments())
        self.scenario = self.scenario.index_copy(0, indices, setup.scenario)

    def hover_at(
        self, columns: Bool[Tensor, " n"], place_m: Float[Tensor, "3 n"], craft: Craft, own: FlightSenses
    ) -> None:
        """Let the masked drones hover at these positions, with fresh memory."""
        blank = blank_memory(self.state.shape[1], motors_hover(craft), own)
        self.state = torch.where(columns, resting(place_m, craft), self.state)
        self.memory = torch.where(columns, blank, self.memory)

    @property
    def _drones(self) -> int:
        return self.state.shape[1] // self.worlds


class Contacts(NamedTuple):
    """Masks of drones that touch something, by distance, and by contact in engines that have contacts."""

    drone: Bool[Tensor, " n"]
    cylinder: Bool[Tensor, " n"]
    floor: Bool[Tensor, " n"]

    @classmethod
    def of(cls, touched: Touched, near: NearestObjects, world: SwarmWorld) -> Contacts:
        drone = touched.drone | (near.drone_gap_m < world.touch_drone_m)
        return cls(drone, touched.cylinder | (near.cylinder_gap_m < world.touch_cylinder_m), touched.floor)

    @property
    def collided(self) -> Bool[Tensor, " n"]:
        """Drones that touch another drone or a cylinder."""
        return self.drone | self.cylinder


def resting(position_m: Float[Tensor, "3 n"], craft: Craft) -> Float[Tensor, "17 n"]:
    """States at these positions: level, at rest, rotors at hover speed."""
    state = start(position_m.shape[1])
    state[POS], state[ROTOR] = position_m, craft.hover_speed
    return state
