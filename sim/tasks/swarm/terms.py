"""Swarm: many drones fly to their goals among cylinders without touching anything; observation and cost.

Randomisation: scenario, cylinders, starts and goals (sim/tasks/swarm/scenarios.py). Success of a drone: no
contact, and a mean distance to its goal below `world.reach_m` over the last second. Training minimises the
cost directly, there is no reward. Everything is a pure function that compiles to one loop, except for the
choice of the nearest obstacles (sim/tasks/swarm/world.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import POS, QUAT, RATE, VEL, xyz
from sim.tasks.flight.observation import SENSED_SIZE, FlightSenses, observe, remember
from sim.tasks.swarm.guidance import Guidance, wanted_velocity
from sim.tasks.swarm.world import SwarmWorld

NEIGHBOUR_SIZE = 7  # observed numbers of a drone: bearing 3, relative velocity 3, nearness
CYLINDER_SIZE = 3  # observed numbers of a cylinder: bearing of the axis 2, nearness
GOAL_M = 1.5  # beyond about this distance a goal is observed as a direction only
RANGE_M = 3.0  # range of the senses
FINE_M = 0.3  # distance to which half of a bearing's length is devoted
WALL_M = 0.4  # distance to walls, floor and ceiling below which a step costs more


@dataclass(frozen=True, slots=True)
class SwarmSenses:
    """Observed parts: the drone itself, its goal, and the nearest drones and cylinders."""

    neighbours: int = 6  # number of drones
    cylinders: int = 4  # number of cylinders
    history: int = 4  # number of last actions
    noise: bool = True  # noise on the drone's own state, as in sim/tasks/flight/observation.py

    @property
    def own(self) -> FlightSenses:
        """Senses of the drone itself."""
        return FlightSenses(history=self.history, integral=False, noise=self.noise)

    @property
    def own_size(self) -> int:
        """Goal 3, rotation matrix 9, velocity 3, rates 3, velocity of the goal 3, last actions."""
        return SENSED_SIZE + 3 + 4 * self.history

    @property
    def obs_size(self) -> int:
        """Width of the whole observation: own part, drones, cylinders."""
        return self.own_size + NEIGHBOUR_SIZE * self.neighbours + CYLINDER_SIZE * self.cylinders


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the cost terms, and ranges of its barriers."""

    velocity: float = 1.0
    rate: float = 0.005
    tilt: float = 0.05
    yaw: float = 0.3
    action: float = 0.02
    edge: float = 5.0
    near: float = 2.0  # nearness, at gaps below `warn`
    closing: float = 1.0  # approach speed, at gaps below `brake`
    warn_cylinder_m: float = 0.12
    brake_cylinder_m: float = 0.40
    warn_drone_m: float = 0.20
    brake_drone_m: float = 1.20
    guidance: Guidance = field(default_factory=Guidance)


SenseFn = Callable[..., tuple[Tensor, ...]]


def make_guide(weights: Weights) -> SenseFn:
    """guide(state, goal, drones, cylinders) -> (guidance velocity (3, n) [m/s, world],), without gradient."""

    def guide(state: Tensor, goal: Tensor, drones: Tensor, cylinders: Tensor) -> tuple[Tensor, ...]:
        position, to_goal = state[POS], goal[0:3] - state[POS]
        # The nearest comes last, since the last obstacle counts most.
        others = [xyz(other[0:3] - position) for other in reversed(drones.unbind(1))]
        axes = [(axis[0] - position[0], axis[1] - position[1]) for axis in reversed(cylinders.unbind(1))]
        wanted = wanted_velocity(xyz(to_goal), xyz(goal[3:6]), others, axes, weights.guidance)
        return (torch.stack(wanted),)

    return guide


def make_sense(craft: Craft, world: SwarmWorld, senses: SwarmSenses, weights: Weights) -> SenseFn:
    """sense(state, memory, action, goal, drones, cylinders, noise, wanted, caution) -> (memory, obs, cost).

    goal: (6, n) position and velocity. drones: (6, k, n), cylinders: (2, j, n), both from `nearest`. noise:
    (18, n) standard normal. wanted: (3, n) from `make_guide`. caution: (1, n) weight of the collision terms,
    which grows during training.
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
    state: Tensor, action: Tensor, drones: Tensor, cylinders: Tensor, wanted: Tensor, caution: Tensor,
    hover: float, world: SwarmWorld, weights: Weights,
) -> dict[str, Tensor]:  # fmt: skip
    """Cost terms by name, each (n,). hover: the hover action; other arguments as in `make_sense`."""
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
    """Barrier cost (n,) of near obstacles and of approaching them.

    apart: offsets [m] from the obstacles, speed: relative velocities [m/s]; the barrier rises within `warn_m`
    of contact, the cost of approach speed within `brake_m`.
    """
    far = torch.sqrt(apart.square().sum(0) + 1e-8)
    closing = torch.relu(-(apart * speed).sum(0) / far)
    gap = far - touch_m
    near = torch.relu(1.0 - gap / warn_m).clamp(max=3.0)
    braking = closing * torch.relu(1.0 - gap / brake_m).clamp(max=1.5)
    # Only the largest approach counts: a sum would keep many drones from gathering at one goal.
    return weights.near * (near * near).sum(0) + weights.closing * braking.amax(0)


def see_drones(drones: Float[Tensor, "6 k n"], position: Tensor, velocity: Tensor) -> Float[Tensor, "7*k n"]:
    """Components of all k drones: 3 of bearing, 3 of relative velocity, nearness; 0 out of range."""
    offset, speed = drones[0:3] - position.unsqueeze(1), drones[3:6] - velocity.unsqueeze(1)
    bearing, nearness = _bearing(offset, 0.0)
    there = (nearness > 0.0).to(nearness.dtype)
    return torch.cat([there * bearing, there * speed, nearness]).flatten(0, 1)


def see_cylinders(
    cylinders: Float[Tensor, "2 j n"], position: Tensor, world: SwarmWorld
) -> Float[Tensor, "3*j n"]:
    """Components of all j cylinders: 2 of the axis' bearing, nearness of the surface; 0 out of range."""
    bearing, nearness = _bearing(cylinders - position[0:2].unsqueeze(1), world.cylinder_m)
    there = (nearness > 0.0).to(nearness.dtype)
    return torch.cat([there * bearing, nearness]).flatten(0, 1)


def _bearing(offset: Tensor, size_m: float) -> tuple[Tensor, Float[Tensor, "1 k n"]]:
    """Returns (bearing, nearness) of an obstacle.

    The bearing is a direction of length 2 at the surface and 1 FINE_M away from it, so that the last
    decimetres, which matter most, take half of its range. The nearness is 1 at the surface and 0 at RANGE_M.
    """
    far = torch.sqrt(offset.square().sum(0, keepdim=True) + 1e-8)
    gap = torch.relu(far - size_m)
    return offset / far * (2.0 * FINE_M / (FINE_M + gap)), (1.0 - gap / RANGE_M).clamp(0.0, 1.0)


def bounded_offset(offset: Tensor, limit_m: float) -> Tensor:
    """x / sqrt(1 + |x|^2 / limit^2): the offset when near, a direction of length `limit_m` when far."""
    return offset * torch.rsqrt(1.0 + offset.square().sum(0, keepdim=True) / (limit_m * limit_m))
