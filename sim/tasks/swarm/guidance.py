"""Guidance velocity of training: towards the goal, around cylinders and other drones.

Only the cost uses it; policies do not observe it. It is a function of positions in components (n,), so it
compiles to one loop. Towards a goal with velocity u, at distance d in direction e,

    v = u + v_max tanh(k d / v_max) e.

Then, for each obstacle at distance s beyond the distance to keep, with the unit vector m pointing away from
it, the approach speed -v.m is limited to a s, for drones to a s / (1 + s / s_0). The excess is removed and
turned into sideways velocity, on the side on which v passes the obstacle already, with a small preference for
the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sim.engines.quad.layout import Vec


@dataclass(frozen=True, slots=True)
class Guidance:
    """Parameters of the guidance velocity."""

    most_m_s: float = 1.5  # v_max
    gain_hz: float = 1.2  # k: speed per metre of distance near the goal
    keep_cylinder_m: float = 0.42  # distance to keep from the axis of a cylinder
    keep_drone_m: float = 0.22  # distance to keep between middles of drones
    cylinder_hz: float = 2.0  # a: approach speed allowed per metre of distance to a cylinder
    drone_hz: float = 3.0  # ... to a drone, for each of the two
    drone_early_m: float = (
        1.5  # s_0: beyond about this distance a metre allows less, so that drones turn early
    )
    narrow_m_s: float = 0.7  # speed allowed at the distance to keep from a cylinder
    narrow_hz: float = 1.5  # ... and its increase per metre
    turn: float = 1.0  # share of the removed approach speed that is turned sideways
    right: float = 0.3  # preference for passing on the right, as a share of the removed speed


def wanted_velocity(
    to_goal: Vec,
    goal_velocity: Vec,
    drones: Sequence[Vec],
    cylinders: Sequence[tuple[Tensor, Tensor]],
    how: Guidance,
) -> Vec:
    """Guidance velocity [m/s, world] of each drone.

    to_goal: goal minus position [m]. drones, cylinders: offsets of near obstacles from the drone [m]; the
    later an obstacle comes in the list, the more it counts.
    """
    ex, ey, ez = to_goal
    distance = torch.sqrt(ex * ex + ey * ey + ez * ez + 1e-8)
    most = torch.full_like(distance, how.most_m_s)
    for cx, cy in cylinders:
        gap = torch.sqrt(cx * cx + cy * cy + 1e-8) - how.keep_cylinder_m
        most = torch.minimum(most, how.narrow_m_s + how.narrow_hz * torch.relu(gap))
    pull = most * torch.tanh(how.gain_hz * distance / most) / distance
    v = tuple(u + pull * e for u, e in zip(goal_velocity, to_goal, strict=True))
    # No turning near the goal: several drones with the same goal would circle around it for ever.
    turn = how.turn * distance.clamp(max=1.0)
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
    """v with the excess approach speed turned sideways; `away` points from the obstacle to the drone."""
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
