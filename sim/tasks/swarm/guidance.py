"""The velocity that training asks for: towards the goal, bent around cylinders and other drones.

Only the cost knows it; the deployed policy sees its own senses. It is a function of positions, written for
rows (n,), so it compiles to one loop. Towards the goal at distance d

    v = u + v_max tanh(k d / v_max) e,

and then, for everything near at distance s beyond the distance to keep, seen along the unit vector m away
from it, the approach -v.m may be at most a s, for drones a s / (1 + s / s_0). What exceeds that is taken
away, and turned sideways, along the way that v already passes the thing, a little to the right where it
passes on neither side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sim.engines.quad.layout import Vec


@dataclass(frozen=True, slots=True)
class Guidance:
    """Speeds and distances of the wanted velocity."""

    most_m_s: float = 1.5
    gain_hz: float = 1.2  # k: how fast the last metre is covered
    keep_cylinder_m: float = 0.42  # from the axis
    keep_drone_m: float = 0.22
    cylinder_hz: float = 2.0  # a: the approach that is allowed per metre of distance
    drone_hz: float = 3.0  # ... of each of two drones
    drone_early_m: float = 1.5  # farther apart than about this a metre allows less, so that they turn early
    narrow_m_s: float = 0.7  # speed that is allowed at the distance to keep from a cylinder
    narrow_hz: float = 1.5  # ... and what every metre more allows
    turn: float = 1.0  # share of the lost approach that is turned sideways
    right: float = 0.3  # preference for passing on the right, as a share of the speed


def wanted_velocity(
    to_goal: Vec,
    goal_velocity: Vec,
    drones: Sequence[Vec],
    cylinders: Sequence[tuple[Tensor, Tensor]],
    how: Guidance,
) -> Vec:
    """to_goal: goal less position. drones, cylinders: offsets of the near things from the drone."""
    ex, ey, ez = to_goal
    distance = torch.sqrt(ex * ex + ey * ey + ez * ez + 1e-8)
    most = torch.full_like(distance, how.most_m_s)
    for cx, cy in cylinders:
        gap = torch.sqrt(cx * cx + cy * cy + 1e-8) - how.keep_cylinder_m
        most = torch.minimum(most, how.narrow_m_s + how.narrow_hz * torch.relu(gap))
    pull = most * torch.tanh(how.gain_hz * distance / most) / distance
    v = tuple(u + pull * e for u, e in zip(goal_velocity, to_goal, strict=True))
    turn = how.turn * distance.clamp(
        max=1.0
    )  # near the goal nobody goes round anybody: a crowd would circle for ever
    for dx, dy, dz in drones:
        gap = torch.sqrt(dx * dx + dy * dy + dz * dz + 1e-8) - how.keep_drone_m
        allowed = how.drone_hz * gap / (1.0 + torch.relu(gap) / how.drone_early_m)
        v = _bent(v, (-dx, -dy, -dz), allowed, turn, how)
    for cx, cy in cylinders:
        allowed = how.cylinder_hz * (torch.sqrt(cx * cx + cy * cy + 1e-8) - how.keep_cylinder_m)
        v = _bent(v, (-cx, -cy, torch.zeros_like(cx)), allowed, turn, how)
    return v[0], v[1], v[2]


def _bent(
    v: tuple[Tensor, ...], away: Vec, allowed: Tensor, turn: Tensor, how: Guidance
) -> tuple[Tensor, ...]:
    """v, turned where it approaches faster than allowed; `away` points from the thing to the drone."""
    ax, ay, az = away
    far = torch.sqrt(ax * ax + ay * ay + az * az + 1e-8)
    mx, my, mz = ax / far, ay / far, az / far
    vx, vy, vz = v
    approach = -(vx * mx + vy * my + vz * mz)
    excess = torch.relu(approach - allowed.clamp(min=-1.0))
    lost = torch.minimum(excess, torch.relu(approach))
    sx, sy, sz = vx + approach * mx, vy + approach * my, vz + approach * mz
    bias = how.right * lost
    sx, sy = sx - bias * my, sy + bias * mx
    side = turn * lost / torch.sqrt(sx * sx + sy * sy + sz * sz + 1e-6)
    return vx + excess * mx + side * sx, vy + excess * my + side * sy, vz + excess * mz + side * sz
