"""What a drone of a swarm sees, and what its flight costs: one pure function of rows, so that it compiles to
one loop.

Everything but the choice of the nearest things is in here; see `sim/tasks/swarm/world.py` for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import POS, QUAT, RATE, VEL, xyz
from sim.tasks.flight.observation import SENSED_SIZE, FlightSenses, observe, remember
from sim.tasks.swarm.guidance import Guidance, wanted_velocity
from sim.tasks.swarm.world import SwarmWorld

NEIGHBOUR_SIZE = 7  # bearing 3, relative velocity 3, nearness
CYLINDER_SIZE = 3  # bearing of the axis 2, nearness
GOAL_M = 1.5  # a goal farther than about this is seen as a direction
RANGE_M = 3.0  # nothing farther is seen
FINE_M = 0.3  # half of a bearing's range is for things nearer than this
WALL_M = 0.4  # staying nearer to a wall, the floor or the ceiling costs


@dataclass(frozen=True, slots=True)
class SwarmSenses:
    """Senses of a drone: itself, its goal, and the nearest others and cylinders."""

    neighbours: int = 6
    cylinders: int = 4
    history: int = 4  # last actions
    noise: bool = True  # of its own state, as in flight.py

    @property
    def own(self) -> FlightSenses:
        return FlightSenses(history=self.history, integral=False, noise=self.noise)

    @property
    def own_size(self) -> int:
        """Goal 3, rotation matrix 9, velocity 3, rates 3, velocity of the goal 3, last actions."""
        return SENSED_SIZE + 3 + 4 * self.history

    @property
    def obs_size(self) -> int:
        return self.own_size + NEIGHBOUR_SIZE * self.neighbours + CYLINDER_SIZE * self.cylinders


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the cost, and distances over which its barriers rise."""

    velocity: float = 1.0
    rate: float = 0.005
    tilt: float = 0.05
    yaw: float = 0.3
    action: float = 0.02
    edge: float = 5.0
    near: float = 2.0  # within `warn` of touching
    closing: float = 1.0  # speed of approach within `brake` of touching
    warn_cylinder_m: float = 0.12
    brake_cylinder_m: float = 0.40
    warn_drone_m: float = 0.20
    brake_drone_m: float = 1.20
    guidance: Guidance = field(default_factory=Guidance)


SenseFn = Callable[..., tuple[Tensor, ...]]


def make_guide(weights: Weights) -> SenseFn:
    """guide(state, goal, drones, cylinders) -> (wanted velocity (3, n),): a target, through which no gradient
    goes.
    """

    def guide(state: Tensor, goal: Tensor, drones: Tensor, cylinders: Tensor) -> tuple[Tensor, ...]:
        position, to_goal = state[POS], goal[0:3] - state[POS]
        # The nearest is bent around last: it has the last word.
        others = [xyz(other[0:3] - position) for other in reversed(drones.unbind(1))]
        axes = [(axis[0] - position[0], axis[1] - position[1]) for axis in reversed(cylinders.unbind(1))]
        wanted = wanted_velocity(xyz(to_goal), xyz(goal[3:6]), others, axes, weights.guidance)
        return (torch.stack(wanted),)

    return guide


def make_sense(craft: Craft, world: SwarmWorld, senses: SwarmSenses, weights: Weights) -> SenseFn:
    """sense(state, memory, action, goal, drones, cylinders, noise, wanted, caution) -> (memory, obs, cost).

    goal: (6, n) its position and velocity. drones: (6, k, n), cylinders: (2, j, n), as `nearest` gives them.
    wanted: (3, n) as `make_guide` gives it. caution: (1, n) weight of the collision terms, annealed in
    training.
    """
    hover = 2.0 * craft.hover_speed - 1.0

    def sense(
        state: Tensor, memory: Tensor, action: Tensor, goal: Tensor, drones: Tensor, cylinders: Tensor,
        noise: Tensor, wanted: Tensor, caution: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        seen = observe(state, noise if senses.noise else None)
        kept = remember(memory, action, seen[POS], senses.own, world.dt_s)
        own = [bounded_offset(goal[0:3] - seen[POS], GOAL_M), seen[3:], goal[3:6], kept]
        near = [see_drones(drones, seen[POS], seen[12:15]), see_cylinders(cylinders, seen[POS], world)]
        costs = terms(state, action, drones, cylinders, wanted, caution[0], hover, world, weights)
        total = torch.stack(list(costs.values())).sum(0)
        return kept, torch.cat([*own, *near]), total

    return sense


def terms(
    state: Tensor, action: Tensor, drones: Tensor, cylinders: Tensor, wanted: Tensor, caution: Tensor, hover: float,
    world: SwarmWorld, weights: Weights,
) -> dict[str, Tensor]:  # fmt: skip
    """Cost terms by name, each (n,)."""
    position, velocity, tilt, yaw = state[POS], state[VEL], state[QUAT][1:3], state[QUAT][3]
    error = (velocity - wanted).square().sum(0)
    beyond = torch.relu(position[0:2].abs() - (world.room_m[0] / 2 - WALL_M)).sum(0)
    beyond = beyond + torch.relu(WALL_M - position[2]) + torch.relu(position[2] - world.room_m[2] + WALL_M)
    apart, closing = position.unsqueeze(1) - drones[0:3], velocity.unsqueeze(1) - drones[3:6]
    peril = danger(apart, closing, world.touch_drone_m, weights.warn_drone_m, weights.brake_drone_m, weights)
    beside, flat = position[0:2].unsqueeze(1) - cylinders, velocity[0:2].unsqueeze(1)
    peril = peril + danger(
        beside, flat, world.touch_cylinder_m, weights.warn_cylinder_m, weights.brake_cylinder_m, weights
    )
    return {
        "velocity": weights.velocity * (torch.sqrt(error + 0.01) - 0.1),
        "rate": weights.rate * state[RATE].square().sum(0),
        "tilt": weights.tilt * 2.0 * tilt.square().sum(0),
        "yaw": weights.yaw * 4.0 * yaw * yaw,
        "action": weights.action * (action - hover).square().sum(0),
        "edge": weights.edge * beyond,
        "danger": caution * peril,
    }


def danger(
    apart: Tensor, speed: Tensor, touch_m: float, warn_m: float, brake_m: float, weights: Weights
) -> Tensor:
    """A wall that rises before touching, and a price on the speed of approach that rises before that:
    (n,).
    """
    far = torch.sqrt(apart.square().sum(0) + 1e-8)
    closing = torch.relu(-(apart * speed).sum(0) / far)
    gap = far - touch_m
    near = torch.relu(1.0 - gap / warn_m).clamp(max=3.0)
    braking = closing * torch.relu(1.0 - gap / brake_m).clamp(max=1.5)
    # Only the worst approach: the sum over a crowd would keep it from closing up round one goal.
    return weights.near * (near * near).sum(0) + weights.closing * braking.amax(0)


def see_drones(drones: Float[Tensor, "6 k n"], position: Tensor, velocity: Tensor) -> Float[Tensor, "7*k n"]:
    """Row after row of all k: bearing 3, relative velocity 3, nearness; zeros for who is out of range."""
    offset, speed = drones[0:3] - position.unsqueeze(1), drones[3:6] - velocity.unsqueeze(1)
    bearing, nearness = _bearing(offset, 0.0)
    there = (nearness > 0.0).to(nearness.dtype)
    return torch.cat([there * bearing, there * speed, nearness]).flatten(0, 1)


def see_cylinders(
    cylinders: Float[Tensor, "2 j n"], position: Tensor, world: SwarmWorld
) -> Float[Tensor, "3*j n"]:
    """Row after row of all j: bearing of the axis 2, nearness of the surface."""
    bearing, nearness = _bearing(cylinders - position[0:2].unsqueeze(1), world.cylinder_m)
    there = (nearness > 0.0).to(nearness.dtype)
    return torch.cat([there * bearing, nearness]).flatten(0, 1)


def _bearing(offset: Tensor, size_m: float) -> tuple[Tensor, Float[Tensor, "1 k n"]]:
    """(direction, 2 long at the surface and half of that FINE_M away; nearness, 1 at the surface and 0 at
    RANGE_M).

    What matters happens in the last decimetres: the bearing spreads them over half of its range.
    """
    far = torch.sqrt(offset.square().sum(0, keepdim=True) + 1e-8)
    gap = torch.relu(far - size_m)
    return offset / far * (2.0 * FINE_M / (FINE_M + gap)), (1.0 - gap / RANGE_M).clamp(0.0, 1.0)


def bounded_offset(offset: Tensor, reach_m: float) -> Tensor:
    """The offset, its length bent towards at most `reach_m`: exact when near, a direction when far."""
    return offset * torch.rsqrt(1.0 + offset.square().sum(0, keepdim=True) / (reach_m * reach_m))
