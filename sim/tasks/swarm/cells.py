"""Field of cylinders as bits of cells, and the search for near ones, in operations that compile.

Cylinders stand in the middle of cells. One number holds the bits of a line of cells along x, so a whole field
is ten numbers of an episode, and only the nine cells around a drone have to be searched.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.tasks.swarm.world import ABSENT_M, CELL_M, SwarmWorld

SIGHT_M = 1.5 * CELL_M  # range: nearer axes are always in the nine cells around a drone


def grid(world: SwarmWorld) -> tuple[int, int]:
    """Number of cells along x and along y."""
    return round(world.room_m[0] / CELL_M), round(world.room_m[1] / CELL_M)


def cell_bits(free: Bool[Tensor, "n c"], world: SwarmWorld) -> Float[Tensor, "r n"]:
    """For each line of cells along x the sum of 2^k over its occupied cells k; at most 11 cells (`_bit`)."""
    wide, deep = grid(world)
    weights = 2.0 ** torch.arange(wide, device=free.device)
    return ((~free).view(-1, deep, wide) * weights).sum(2).T.contiguous()


def nearest_cylinders(
    bits: Float[Tensor, "r n"], position_m: Float[Tensor, "3 n"], world: SwarmWorld, count: int
) -> Float[Tensor, "2 k n"]:
    """Axes [m, world] of the `count` nearest cylinders (at most 9) within SIGHT_M, nearest first.

    Missing ones are at ABSENT_M. There is no gradient, since cylinders do not move. The nine cells are sorted
    by topk: the compiler would inline a network of comparisons many times.
    """
    wide, deep = grid(world)
    position_m = position_m.detach()
    device = position_m.device
    beside, rows = torch.tensor([[-1.0], [0.0], [1.0]], device=device), torch.arange(deep, device=device)
    along_x, along_y = (cell.unsqueeze(0) + beside for cell in _cell(position_m, world))
    lines = torch.eq(along_y.unsqueeze(0), rows.view(-1, 1, 1)) * bits.unsqueeze(1)
    masks = lines.sum(0)  # (3, n)
    taken = _bit(masks.unsqueeze(1), along_x.unsqueeze(0)).flatten(0, 1)  # (9, n)
    x = (along_x + (0.5 - wide / 2)).repeat(3, 1) * CELL_M
    y = (along_y + (0.5 - deep / 2)).repeat_interleave(3, dim=0) * CELL_M
    far = (x - position_m[0]).square() + (y - position_m[1]).square()
    far = torch.where(taken & (far < SIGHT_M**2), far, ABSENT_M**2)
    least, index = far.topk(count, dim=0, largest=False)
    axes = torch.stack([x.gather(0, index), y.gather(0, index)])
    return torch.where(least < SIGHT_M**2, axes, ABSENT_M)


def touches_cylinder(
    bits: Float[Tensor, "r n"], position_m: Float[Tensor, "3 n"], world: SwarmWorld
) -> Bool[Tensor, " n"]:
    """Mask of drones in contact with a cylinder.

    The distance of contact is less than half a cell, so only the drone's own cell has to be searched.
    """
    wide, deep = grid(world)
    i, j = _cell(position_m, world)
    mask = (torch.eq(j, torch.arange(deep).unsqueeze(1)) * bits).sum(0)
    x, y = position_m[0] - (i + 0.5 - wide / 2) * CELL_M, position_m[1] - (j + 0.5 - deep / 2) * CELL_M
    return _bit(mask, i) & (x * x + y * y < world.touch_cylinder_m**2)


def _cell(position_m: Tensor, world: SwarmWorld) -> tuple[Tensor, Tensor]:
    """Numbers of the cell along x and y, counted from the corner."""
    wide, deep = grid(world)
    return torch.floor(position_m[0] / CELL_M + wide / 2), torch.floor(position_m[1] / CELL_M + deep / 2)


def _bit(mask: Tensor, k: Tensor) -> Bool[Tensor, "*s"]:
    """Mask where bit k of a floating-point number is set.

    mask / 2^k is a multiple of 2^-k; the added constant is larger than rounding errors and smaller than 2^-k.
    """
    return torch.remainder(torch.floor(mask * torch.exp2(-k) + 3e-4), 2.0) > 0.5
