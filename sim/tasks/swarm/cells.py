"""A field of cylinders as one row of bits per row of cells, and what of it is near: row functions, so they compile.

Cylinders stand in the middle of cells, so a whole field is ten numbers that an episode can carry, and the nine cells
around a drone are a few selections, where a search among all cylinders would not fit into one loop over drones.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.tasks.swarm.world import ABSENT_M, CELL_M, SwarmWorld

SIGHT_M = 1.5 * CELL_M  # the axes of all cylinders nearer than this are in the nine cells around


def grid(world: SwarmWorld) -> tuple[int, int]:
    """Cells along x and y."""
    return round(world.room_m[0] / CELL_M), round(world.room_m[1] / CELL_M)


def cell_bits(free: Bool[Tensor, "n c"], world: SwarmWorld) -> Float[Tensor, "r n"]:
    """Row after row of cells along x: the sum of 2^k over the taken ones. At most 11 cells: see `_bit`."""
    wide, deep = grid(world)
    weights = 2.0 ** torch.arange(wide)
    return ((~free).view(-1, deep, wide) * weights).sum(2).T.contiguous()


def nearest_cylinders(
    bits: Float[Tensor, "r n"], position_m: Float[Tensor, "3 n"], world: SwarmWorld, count: int
) -> Float[Tensor, "2 k n"]:
    """Axes [m, world] of the `count` nearest cylinders (at most 9) within SIGHT_M, nearest first; else ABSENT_M."""
    wide, deep = grid(world)
    position_m = position_m.detach()  # cylinders stand still: their gradient is zero, so it need not be compiled
    column, row = _cell(position_m, world)
    found: list[tuple[Tensor, ...]] = []
    for up in (-1.0, 0.0, 1.0):
        mask = _choose(row + up, bits)
        y = (row + (up + 0.5 - deep / 2)) * CELL_M
        for right in (-1.0, 0.0, 1.0):
            taken = _bit(mask, column + right)
            x = (column + (right + 0.5 - wide / 2)) * CELL_M
            far = (x - position_m[0]).square() + (y - position_m[1]).square()
            there = taken & (far < SIGHT_M**2)
            found.append(_where(there, (far, x, y), tuple(torch.full_like(far, ABSENT_M**p) for p in (2, 1, 1))))
    chosen = _least(found, count)
    return torch.stack([torch.stack([item[axis] for item in chosen]) for axis in (1, 2)])


def touches_cylinder(
    bits: Float[Tensor, "r n"], position_m: Float[Tensor, "3 n"], world: SwarmWorld
) -> Bool[Tensor, " n"]:
    """Nearer to an axis than cylinder and craft are wide; less than half a cell, so only the own cell can hold it."""
    wide, deep = grid(world)
    column, row = _cell(position_m, world)
    x, y = position_m[0] - (column + 0.5 - wide / 2) * CELL_M, position_m[1] - (row + 0.5 - deep / 2) * CELL_M
    return _bit(_choose(row, bits), column) & (x * x + y * y < world.touch_cylinder_m**2)


def _cell(position_m: Tensor, world: SwarmWorld) -> tuple[Tensor, Tensor]:
    """(column, row), counted from the corner."""
    wide, deep = grid(world)
    return torch.floor(position_m[0] / CELL_M + wide / 2), torch.floor(position_m[1] / CELL_M + deep / 2)


def _choose(index: Tensor, rows: Float[Tensor, "r n"]) -> Tensor:
    """Row number `index` for each column, 0 where there is none."""
    chosen = torch.zeros_like(index)
    for k, row in enumerate(rows.unbind(0)):
        chosen = torch.where(index == float(k), row, chosen)
    return chosen


def _bit(mask: Tensor, k: Tensor) -> Bool[Tensor, " n"]:
    """Is bit k set? Shares are multiples of 2^-k: what is added outweighs rounding and is less than any of them."""
    return torch.remainder(torch.floor(mask * torch.exp2(-k) + 3e-4), 2.0) > 0.5


def _least(items: list[tuple[Tensor, ...]], count: int) -> list[tuple[Tensor, ...]]:
    """The `count` items with the least first component, in order: rounds of comparing and swapping neighbours."""
    items = list(items)
    for first in range(count):
        for k in range(len(items) - 1, first, -1):
            swap = items[k][0] < items[k - 1][0]
            items[k - 1], items[k] = _where(swap, items[k], items[k - 1]), _where(swap, items[k - 1], items[k])
    return items[:count]


def _where(condition: Tensor, one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.where(condition, a, b) for a, b in zip(one, other, strict=True))
