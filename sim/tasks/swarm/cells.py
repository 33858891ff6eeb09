"""A field of cylinders as one row of bits per row of cells, and what of it is near: row functions, so they
compile.

Cylinders stand in the middle of cells, so a whole field is ten numbers that an episode can carry, and the
nine cells around a drone are all that is searched.
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
    """Axes [m, world] of the `count` nearest cylinders (at most 9) within SIGHT_M, nearest first; else
    ABSENT_M.

    No gradient: cylinders stand still. The nine cells are rows of one tensor and topk sorts them, for a
    network of comparisons would be inlined over and over by the compiler.
    """
    wide, deep = grid(world)
    position_m = position_m.detach()
    columns, rows = (
        cell.unsqueeze(0) + torch.tensor([[-1.0], [0.0], [1.0]]) for cell in _cell(position_m, world)
    )
    masks = (torch.eq(rows.unsqueeze(0), torch.arange(deep).view(-1, 1, 1)) * bits.unsqueeze(1)).sum(
        0
    )  # (3, n)
    taken = _bit(masks.unsqueeze(1), columns.unsqueeze(0)).flatten(0, 1)  # (9, n)
    x = (columns + (0.5 - wide / 2)).repeat(3, 1) * CELL_M
    y = (rows + (0.5 - deep / 2)).repeat_interleave(3, dim=0) * CELL_M
    far = (x - position_m[0]).square() + (y - position_m[1]).square()
    far = torch.where(taken & (far < SIGHT_M**2), far, ABSENT_M**2)
    least, index = far.topk(count, dim=0, largest=False)
    axes = torch.stack([x.gather(0, index), y.gather(0, index)])
    return torch.where(least < SIGHT_M**2, axes, ABSENT_M)


def touches_cylinder(
    bits: Float[Tensor, "r n"], position_m: Float[Tensor, "3 n"], world: SwarmWorld
) -> Bool[Tensor, " n"]:
    """Nearer to an axis than cylinder and craft are wide; less than half a cell, so only the own cell can
    hold it.
    """
    wide, deep = grid(world)
    column, row = _cell(position_m, world)
    mask = (torch.eq(row, torch.arange(deep).unsqueeze(1)) * bits).sum(0)
    x, y = position_m[0] - (column + 0.5 - wide / 2) * CELL_M, position_m[1] - (row + 0.5 - deep / 2) * CELL_M
    return _bit(mask, column) & (x * x + y * y < world.touch_cylinder_m**2)


def _cell(position_m: Tensor, world: SwarmWorld) -> tuple[Tensor, Tensor]:
    """(column, row), counted from the corner."""
    wide, deep = grid(world)
    return torch.floor(position_m[0] / CELL_M + wide / 2), torch.floor(position_m[1] / CELL_M + deep / 2)


def _bit(mask: Tensor, k: Tensor) -> Bool[Tensor, "*s"]:
    """Is bit k set? Shares are multiples of 2^-k: what is added outweighs rounding and is less than any of
    them.
    """
    return torch.remainder(torch.floor(mask * torch.exp2(-k) + 3e-4), 2.0) > 0.5
