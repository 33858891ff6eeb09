"""What tasks that fly from one place to the next share: the room, starts, what is seen in body axes, cost
terms.

Observations in body axes look the same wherever the craft is and whichever way it has turned, so what is
learned at one place holds at all others, and yaw needs no holding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import (
    EXTERNAL_SIZE,
    FORCE,
    POS,
    QUAT,
    RATE,
    ROTOR,
    STATE_SIZE,
    TORQUE,
    VEL,
    rotation_matrix,
)
from sim.tasks.flight.hover import tilted
from sim.tasks.flight.protocol import FlightTransition

Vec3 = tuple[float, float, float]
FRONT_SCALES = (1.0,) * 3 + (1.0,) * 3 + (0.5,) * 3 + (0.2,) * 3
FRONT_UNITS = "goal m, up 1, velocity m/s, rates rad/s, all in body axes"
ATTITUDE_NUMBERS = 15  # uniform numbers that `upright` and `disturbance` take


@dataclass(frozen=True, slots=True)
class Room:
    """Room in which flying is allowed; z = 0 is the floor."""

    low_m: Vec3
    high_m: Vec3

    @property
    def scene(self) -> tuple[Vec3, float]:
        """Its middle, and how far its furthest wall is from there along an axis."""
        x, y, z = ((low + high) / 2.0 for low, high in zip(self.low_m, self.high_m, strict=True))
        return (x, y, z), max((high - low) / 2.0 for low, high in zip(self.low_m, self.high_m, strict=True))

    def outside(self, position_m: Float[Tensor, "3 n"]) -> Bool[Tensor, " n"]:
        axes = zip(position_m.unbind(0), self.low_m, self.high_m, strict=True)
        beyond = [(p < low) | (p > high) for p, low, high in axes]
        return beyond[0] | beyond[1] | beyond[2]

    def edge(self, position_m: Float[Tensor, "3 n"], margin_m: float) -> Float[Tensor, " n"]:
        """Zero further than `margin_m` from every wall, then the square of how deep in the margin: 1 at a
        wall.
        """
        total = torch.zeros_like(position_m[0])
        for p, low, high in zip(position_m.unbind(0), self.low_m, self.high_m, strict=True):
            total = total + torch.relu(1.0 - (p - low) / margin_m).square()
            total = total + torch.relu(1.0 - (high - p) / margin_m).square()
        return total


def upright(
    position_m: Float[Tensor, "3 n"], velocity_m_s: Float[Tensor, "3 n"], unit: Float[Tensor, "6 n"],
    tilt_rad: float, rate_rad_s: float, rotor: float,
) -> Float[Tensor, "17 n"]:  # fmt: skip
    """A start there, tilted by at most `tilt_rad`, turning by at most `rate_rad_s` about each axis."""
    state = torch.empty(STATE_SIZE, position_m.shape[1])
    state[POS], state[VEL], state[ROTOR] = position_m, velocity_m_s, rotor
    state[QUAT] = tilted(unit[0:3], tilt_rad)
    state[RATE] = (2.0 * unit[3:6] - 1.0) * rate_rad_s
    return state


def disturbance(
    craft: Craft, unit: Float[Tensor, "6 n"], force_std: float, torque_std: float
) -> Float[Tensor, "9 n"]:
    """A constant normal force, as a fraction of the weight, and torque, as that of the weight at one
    metre.
    """
    weight_n = craft.mass_kg * GRAVITY_M_S2
    normal = math.sqrt(2.0) * torch.erfinv(2.0 * unit - 1.0)
    external = torch.zeros(EXTERNAL_SIZE, unit.shape[1])
    external[FORCE], external[TORQUE] = (
        normal[0:3] * (force_std * weight_n),
        normal[3:6] * (torque_std * weight_n),
    )
    return external


def pick(rows: Float[Tensor, "kw n"], index: Float[Tensor, " n"], width: int) -> Float[Tensor, "w n"]:
    """For each column the group of `width` rows with this number; the first, where there is none.

    A chain of selections stays in the one compiled loop over drones; a gather would not.
    """
    chosen = rows[:width]
    for k in range(1, len(rows) // width):
        chosen = torch.where(index == k, rows[k * width : (k + 1) * width], chosen)
    return chosen


def in_body(seen: Float[Tensor, "18 n"], world: Float[Tensor, "3 n"]) -> Float[Tensor, "3 n"]:
    """R^T v, with the rotation matrix that is seen."""
    r, (x, y, z) = seen[3:12], world.unbind(0)
    return torch.stack([r[i] * x + r[3 + i] * y + r[6 + i] * z for i in range(3)])


def body_front(seen: Float[Tensor, "18 n"]) -> Float[Tensor, "12 n"]:
    """Where the goal is, which way is up, velocity and rates, in body axes."""
    return torch.cat([in_body(seen, -seen[0:3]), seen[9:12], in_body(seen, seen[12:15]), seen[15:18]])


def from_body_front(
    obs: Float[Tensor, "o n"], state: Float[Tensor, "17 n"], goal_m: Float[Tensor, "3 n"]
) -> Float[Tensor, "17 n"]:
    """The state with position, velocity and rates as `body_front` shows them; the attitude stays the true
    one.
    """
    r, measured = rotation_matrix(state[QUAT]), state.clone()

    def in_world(v: Tensor) -> Tensor:
        return torch.stack([r[3 * i] * v[0] + r[3 * i + 1] * v[1] + r[3 * i + 2] * v[2] for i in range(3)])

    measured[POS], measured[VEL], measured[RATE] = goal_m - in_world(obs[0:3]), in_world(obs[6:9]), obs[9:12]
    return measured


def handling_terms(
    transition: FlightTransition,
    w_rate: float,
    w_action: float,
    w_action_rate: float,
    w_speed: float,
    most_speed_m_s: float,
) -> dict[str, Tensor]:
    """What every course charges for how a craft is flown: rates, effort, change of action, speed above the
    limit.
    """
    rates, velocity = transition.after[RATE], transition.after[VEL]
    speed = (velocity.square().sum(0) + 1e-6).sqrt()
    away = [a - h for a, h in zip(transition.action.unbind(0), transition.hover, strict=True)]
    terms = {
        "rate": w_rate * rates.square().sum(0),
        "action": w_action * torch.stack(away).square().sum(0),
        "speed": w_speed * torch.relu(speed - most_speed_m_s).square(),
    }
    if transition.last is not None:
        terms["action_rate"] = w_action_rate * (transition.action - transition.last).square().sum(0)
    return terms


def pay(cost: Float[Tensor, " n"], alive: float) -> Float[Tensor, " n"]:
    """Reward of a step whose cost has `alive` taken off: r = -cost, and r0 exp(r / r0 - 1) below r0 = alive /
    5.

    Above 0 wherever the craft is: a step at a wall or far from its point would else be worth less than the
    nothing behind the end of a flight, so whoever maximises reward would learn to leave. Straight where
    flights mostly are, for bending progress there would pay for flying to and fro; value and slope are one at
    r0.
    """
    least = 0.2 * alive
    return torch.where(cost <= -least, -cost, least * torch.exp((-cost / least - 1.0).clamp(max=0.0)))


def norm(v: Float[Tensor, "3 n"]) -> Float[Tensor, " n"]:
    """Length, smooth at zero."""
    return (v.square().sum(0) + 1e-6).sqrt()
