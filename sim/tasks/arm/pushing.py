"""Planner of pushes of a T: the face to push at, by a quasi-static model, and the way to it around the T.

A slow push with a force f n at p, relative to the middle of the area, moves the T along a fixed twist (Goyal,
Ruina and Papadopoulos, "Planar sliding with dry friction", 1991; limit surface approximated by an ellipsoid):

    (v, omega) = f (n, (p x n) / c^2),   c = greatest friction torque / greatest friction force

The stick slides along faces without friction, so n is the normal of the face. The error is a point in (x, y,
rho angle) and a push is a straight line in this space. Of all pairs of pushes, the planner begins the one
with the least remaining error plus cost of motion. Pushes through the middle move the T along x and y, others
turn it in either direction, so there is always one that reduces the error.

The plan depends on positions only: where the stick is decides the phase. All in the T's frame, m and rad.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.tasks.arm.tee import UNIT_M, gap_m, pieces_m

C_M, RHO_M = 1.5 * UNIT_M, 1.5 * UNIT_M
STICK_M = 0.008  # radius
_CLEAR_M, _NEAR_M = 0.012, 0.006  # gap between stick and face before a push; on the way around
_ALIGNED_M = 0.007  # largest sideways distance from the point of a push
_TRAVEL, _PUSH = 0.6, 1.5  # cost of a metre of motion, and of pushing, in shares of the error
_ELSEWHERE_M = 0.2  # leaving a face costs as much as this motion
_MORE_M = 0.002  # goal beyond the end of a push, which would otherwise be approached for ever
_RING_M, _MIDDLE_Y_M = 0.112, 2.5 / 7.0 * UNIT_M  # circle around the T, about the joint of bar and stem


def faces(like: Tensor) -> tuple[Float[Tensor, "c 2"], Float[Tensor, "c 2"]]:
    """Candidate pushes, none near a corner: (points on the outline, inward normals)."""
    (bar_y, bar_x, half), (stem_y, stem_x, stem_half) = pieces_m()
    top, under, foot = bar_y + half, bar_y - half, stem_y - stem_half
    edge, room, both = 0.006, STICK_M + 0.005, (-1, 1)
    found = [(x, top, 0.0, -1.0) for x in _spread(-bar_x + edge, bar_x - edge, 9)]
    found += [(sign * x, under, 0.0, 1.0) for sign in both for x in _spread(stem_x + room, bar_x - edge, 4)]
    found += [(x, foot, 0.0, 1.0) for x in _spread(-stem_x + edge, stem_x - edge, 3)]
    found += [(sign * bar_x, y, -sign, 0.0) for sign in both for y in _spread(under + edge, top - edge, 3)]
    found += [(sign * stem_x, y, -sign, 0.0) for sign in both for y in _spread(foot + edge, under - room, 7)]
    table = like.new_tensor(found)
    return table[:, :2], table[:, 2:]


def push(
    stick_m: Float[Tensor, "n 2"], error: Float[Tensor, "n 3"], open_: Bool[Tensor, "n c"]
) -> tuple[Float[Tensor, "n 2"], Bool[Tensor, " n"]]:
    """Next motion of the stick: (its goal [m], mask of worlds where it pushes).

    error: x, y [m] and angle [rad] that are left for the T; open_: candidate pushes that can be reached.
    """
    point, normal = faces(stick_m)
    torque = point[:, 0] * normal[:, 1] - point[:, 1] * normal[:, 0]
    twist = torch.cat([normal, (RHO_M / C_M**2 * torque)[:, None]], -1)  # (c, 3), per unit of force
    size = twist.norm(dim=-1)
    touch = point - STICK_M * normal
    before = touch - _CLEAR_M * normal
    tangent = torch.stack([-normal[:, 1], normal[:, 0]], -1)
    offset = stick_m[:, None] - touch
    along, aside = (offset * normal).sum(-1), (offset * tangent).sum(-1).abs()
    aligned = (aside < _ALIGNED_M) & (along > -_CLEAR_M - 0.004) & (along < 0.01)
    # A push that has nearly begun stays cheap, so that the stick does not alternate between two plans.
    way_m = torch.where(
        aligned, -2.0 * along.clamp_max(0.0), (stick_m[:, None] - before).norm(dim=-1) + _ELSEWHERE_M
    )
    hop_m = torch.cdist(before, before) + _ELSEWHERE_M
    hop_m.fill_diagonal_(0.0)
    scaled = error * error.new_tensor([1.0, 1.0, RHO_M])
    length_m, left = _two_pushes(scaled, twist / size[:, None])
    cost = left + _TRAVEL * (way_m[:, :, None] + hop_m) + torch.where(open_, 0.0, 1e3)[:, :, None]
    plan = cost.flatten(1).argmin(-1)
    best = plan // len(point)
    world = torch.arange(len(stick_m), device=stick_m.device)
    pushing = aligned[world, best]
    # With force f, the stick and the face under it move by f (1 + torque^2 / c^2).
    deep_m = length_m.flatten(1)[world, plan] / size[best] * (1.0 + (torque[best] / C_M) ** 2)
    ahead = touch[best] + normal[best] * (deep_m[:, None] + _MORE_M)
    around = detour(stick_m, before[best])
    return torch.where(pushing[:, None], ahead, around), pushing


def _two_pushes(
    error: Float[Tensor, "n 3"], way: Float[Tensor, "c 3"]
) -> tuple[Float[Tensor, "n c c"], Float[Tensor, "n c c"]]:
    """Every pair of pushes: (length of the first, remaining error as a share plus cost of both).

    Least squares of error = a u + b w with a, b >= 0; the diagonal, and pairs with a negative coefficient,
    hold the first push alone.
    """
    gain = error @ way.T
    one, other = gain[:, :, None], gain[:, None, :]
    same = way @ way.T
    apart = (1.0 - same.square()).clamp_min(1e-6)
    a, b = (one - same * other) / apart, (other - same * one) / apart
    useful = (a > 0.0) & (b > 0.0) & ~torch.eye(len(way), dtype=torch.bool, device=way.device)
    a, b = torch.where(useful, a, one.clamp_min(0.0)), torch.where(useful, b, 0.0)
    size = error.square().sum(-1)[:, None, None].clamp_min(1e-12)
    return a, (1.0 - (a * one + b * other) / size).clamp_min(0.0).sqrt() + _PUSH * (a + b)


def detour(stick_m: Float[Tensor, "n 2"], goal_m: Float[Tensor, "n 2"]) -> Float[Tensor, "n 2"]:
    """Next point of a path around the T: straight where free, else out to a circle and along it."""
    share = torch.linspace(0.0, 1.0, 13, dtype=stick_m.dtype, device=stick_m.device)[None, :, None]
    line = stick_m[:, None] + share * (goal_m - stick_m)[:, None]
    gaps = gap_m(line)
    needed = torch.minimum(gaps[:, 0], gaps[:, -1]).clamp_max(STICK_M + _NEAR_M) - 1e-4
    free = (gaps >= needed[:, None]).all(-1)
    middle = stick_m.new_tensor([0.0, _MIDDLE_Y_M])
    mine, wanted = stick_m - middle, goal_m - middle
    radius = mine.norm(dim=-1, keepdim=True)
    out = middle + mine / radius * _RING_M
    angle, other = torch.atan2(mine[:, 1], mine[:, 0]), torch.atan2(wanted[:, 1], wanted[:, 0])
    turn = torch.remainder(other - angle + torch.pi, 2 * torch.pi) - torch.pi
    next_ = angle + turn.clamp(-0.3, 0.3)
    ring = middle + _RING_M * torch.stack([next_.cos(), next_.sin()], -1)
    return torch.where(free[:, None], goal_m, torch.where(radius < _RING_M - 0.01, out, ring))


def _spread(low: float, high: float, count: int) -> list[float]:
    return [low + (high - low) * i / (count - 1) for i in range(count)]
