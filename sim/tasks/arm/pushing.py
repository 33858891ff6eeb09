"""How to push a T somewhere: which face to push at, judged by a quasi-static model, and the way there around
the T.

A slow push with a force f n at p, from the middle of the area, moves the T along a fixed twist (Goyal, Ruina
and Papadopoulos, "Planar sliding with dry friction", 1991; the limit surface taken as an ellipsoid):

    (v, omega) = f (n, (p x n) / c^2),   c = greatest friction torque / greatest friction force

for a stick that slides along faces freely, so that n is their normal. The error is a point in (x, y, rho
angle), a push a straight line. Of all pairs of pushes, the one that leaves least of the error, counting what
it costs, is begun. Pushes through the middle lead along x and y, others turn both ways, so there is always
one that helps.

Everything is a function of what is seen: where the stick stands decides what it is doing. In the T's frame, m
and rad.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.tasks.arm.tee import UNIT_M, gap_m, pieces_m

C_M, RHO_M = 1.5 * UNIT_M, 1.5 * UNIT_M
STICK_M = 0.008
_CLEAR_M, _NEAR_M, _ALIGNED_M = (
    0.012,
    0.006,
    0.007,
)  # stick to face before a push; on the way; how far aside at most
_TRAVEL, _PUSH = 0.6, 1.5  # share of the error that a metre of way, and of pushing, is worth
_ELSEWHERE_M = 0.2  # leaving a face counts as so much way
_MORE_M = 0.002  # beyond where the push ends, or it would never quite end
_RING_M, _MIDDLE_Y_M = (
    0.112,
    2.5 / 7.0 * UNIT_M,
)  # a circle around the T, about the middle of where bar and stem meet


def faces(like: Tensor) -> tuple[Float[Tensor, "c 2"], Float[Tensor, "c 2"]]:
    """(points on the outline, inward normals) where the stick may push: nowhere near a corner."""
    (bar_y, bar_x, half), (stem_y, stem_x, stem_half) = pieces_m()
    top, under, foot = bar_y + half, bar_y - half, stem_y - stem_half
    edge, room = 0.006, STICK_M + 0.005
    rows = [(x, top, 0.0, -1.0) for x in _spread(-bar_x + edge, bar_x - edge, 9)]
    rows += [(sign * x, under, 0.0, 1.0) for sign in (-1, 1) for x in _spread(stem_x + room, bar_x - edge, 4)]
    rows += [(x, foot, 0.0, 1.0) for x in _spread(-stem_x + edge, stem_x - edge, 3)]
    rows += [(sign * bar_x, y, -sign, 0.0) for sign in (-1, 1) for y in _spread(under + edge, top - edge, 3)]
    rows += [
        (sign * stem_x, y, -sign, 0.0) for sign in (-1, 1) for y in _spread(foot + edge, under - room, 7)
    ]
    table = like.new_tensor(rows)
    return table[:, :2], table[:, 2:]


def push(
    stick_m: Float[Tensor, "n 2"], error: Float[Tensor, "n 3"], open_: Bool[Tensor, "n c"]
) -> tuple[Float[Tensor, "n 2"], Bool[Tensor, " n"]]:
    """(where the stick goes now, is it to push?). error: x, y, angle that the T has to go; open_: faces in
    reach.
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
    # What is nearly there keeps its place in the ranking, or the stick would waver between two plans.
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
    row = torch.arange(len(stick_m), device=stick_m.device)
    pushing = aligned[row, best]
    # With force f, the stick and the face under it go by f (1 + torque^2 / c^2).
    deep_m = length_m.flatten(1)[row, plan] / size[best] * (1.0 + (torque[best] / C_M) ** 2)
    ahead = touch[best] + normal[best] * (deep_m[:, None] + _MORE_M)
    around = detour(stick_m, before[best])
    return torch.where(pushing[:, None], ahead, around), pushing


def _two_pushes(
    error: Float[Tensor, "n 3"], way: Float[Tensor, "c 3"]
) -> tuple[Float[Tensor, "n c c"], Float[Tensor, "n c c"]]:
    """(how far along the first of two unit vectors, what both leave of the error and cost); on the diagonal:
    one alone.

    Least squares of error = a u + b w with a, b >= 0; where one would be negative, the pair is no better than
    one.
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
    """The next point of a way that does not touch: straight where that is free, or out to a ring and along
    it.
    """
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
