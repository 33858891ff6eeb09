"""Paths on a true map, for scripted experts: distance to the goal from every cell, and the direction of the
path.

    D(cell) = min over 8 neighbours of  D(neighbour) + step * cost(neighbour),      D(goal) = 0

by sweeps over all cells of all maps at once until nothing changes (Bellman and Ford). Cells too narrow for
the base cost so much that a path never leads through them, only out of them. h, w = cells; n = maps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robo_rl.core.shapes import Float, Int
from sim.mobile.surroundings import Shapes, clearance

_AROUND = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
_SOLID = 1e3  # cost relative to free floor


def distances(
    cost: Float[Tensor, "n h w"], goal: Int[Tensor, "n 2"], cell_m: float
) -> Float[Tensor, "n h w"]:
    """Distance to the goal [m] on free floor with cost 1. goal: row and column."""
    n, h, w = cost.shape
    far = torch.full((n, h + 2, w + 2), math.inf, dtype=cost.dtype)
    rows = torch.arange(n)
    far[rows, goal[:, 0] + 1, goal[:, 1] + 1] = 0.0
    inner = far[:, 1:-1, 1:-1]
    steps = [cost * cell_m * math.hypot(i, j) for i, j in _AROUND]
    for sweep in range(h * w):
        before = inner.clone() if sweep % 8 == 7 else None
        best = inner
        for (i, j), step in zip(_AROUND, steps, strict=True):
            best = best.minimum(far[:, 1 + i : 1 + i + h, 1 + j : 1 + j + w] + step)
        inner.copy_(best)
        if before is not None and torch.equal(before, inner):
            break
    return inner.clone()


def followers(distance: Float[Tensor, "n h w"]) -> Int[Tensor, "n hw"]:
    """Flat index of the next cell on the path from every cell; at the goal, itself."""
    n, h, w = distance.shape
    padded = torch.nn.functional.pad(distance, (1, 1, 1, 1), value=math.inf)
    beside = torch.stack([padded[:, 1 + i : 1 + i + h, 1 + j : 1 + j + w] for i, j in _AROUND])
    offsets = torch.tensor([i * w + j for i, j in _AROUND])
    least, which = beside.min(0)
    own = torch.arange(h * w).reshape(h, w).expand(n, h, w)
    return torch.where(least < distance, own + offsets[which], own).reshape(n, -1)


class Planner:
    """Paths with a cache of every world's map, until its obstacles or its goal move."""

    def __init__(self, half_m: float, cell_m: float, margin_m: float) -> None:
        """A square of 2 half_m about the origin; `margin_m`: the base's radius and its clearance."""
        self._half_m, self._cell_m, self._margin_m = half_m, cell_m, margin_m
        self._cells = round(2 * half_m / cell_m)
        axis = (torch.arange(self._cells, dtype=torch.float64) + 0.5) * cell_m - half_m
        self._place_m = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
        self._key = self._next = torch.zeros(0, 0)

    def ahead(
        self, shapes: Shapes, goal_m: Float[Tensor, "n 2"], xy_m: Float[Tensor, "n 2"], cells: int
    ) -> Float[Tensor, "n 2"]:
        """Point of the path this many cells ahead [m, world]. Maps are in the host's memory."""
        like, shapes = goal_m, Shapes(*(part.cpu() for part in shapes))
        goal_m, xy_m = goal_m.cpu(), xy_m.cpu()
        self._refresh(shapes, goal_m)
        at = self._index(xy_m)
        for _ in range(cells):
            at = self._next.gather(1, at[:, None])[:, 0]
        arrived = at == self._index(goal_m)
        return torch.where(arrived[:, None], goal_m, self._place_m[at].to(goal_m)).to(like)

    def _refresh(self, shapes: Shapes, goal_m: Float[Tensor, "n 2"]) -> None:
        key = torch.cat([goal_m, shapes.m.flatten(1), shapes.yaw_rad], -1)
        if self._key.shape != key.shape:
            self._key, self._next = (
                torch.full_like(key, math.nan),
                torch.zeros(len(key), self._cells**2).long(),
            )
        stale = (self._key != key).any(1).nonzero()[:, 0]
        if not len(stale):
            return
        few = Shapes(shapes.m[stale], shapes.yaw_rad[stale], shapes.box_half_m, shapes.post_m)
        free_m = clearance(self._place_m.to(goal_m).expand(len(stale), -1, -1), few) - self._margin_m
        cost = 1.0 + 4.0 * (-free_m.clamp_min(0.0) / 0.15).exp() + _SOLID * (free_m < 0.0)
        square = cost.reshape(len(stale), self._cells, self._cells)
        index = self._index(goal_m[stale])
        goal = torch.stack([index // self._cells, index % self._cells], -1)
        self._next[stale] = followers(distances(square, goal, self._cell_m))
        self._key[stale] = key[stale]

    def _index(self, xy_m: Float[Tensor, "n 2"]) -> Int[Tensor, " n"]:
        row, column = ((xy_m + self._half_m) / self._cell_m).long().clamp(0, self._cells - 1).unbind(-1)
        return row * self._cells + column


def pursue(
    target: Float[Tensor, "n 2"], forward_m_s: Float[Tensor, " n"], turn_rad_s: float
) -> Float[Tensor, "n 2"]:
    """Forward and turning speed towards a point in the base's frame: turning in place for a point aside,
    slower in curves.
    """
    bearing = torch.atan2(target[:, 1], target[:, 0])
    forward = forward_m_s * (1.0 - bearing.abs() / 0.9).clamp(0.0, 1.0)
    return torch.stack([forward, (2.5 * bearing).clamp(-turn_rad_s, turn_rad_s)], -1)
