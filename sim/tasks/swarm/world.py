"""Room with drones and vertical cylinders, after Huang et al. 2023 (arXiv 2309.13285): sizes and distances.

The floor is a grid of cells of 1 m; cylinders as tall as the room stand in the middle of cells of the inner 8
x 8. Two neighbouring cylinders leave 0.4 m between them, so the lines between cells are free at any density.
The last axis of a tensor counts drones, those of one world next to each other: index = world * drones +
drone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float, Int64
from sim.engines.quad.craft import Craft

CELL_M = 1.0
ABSENT_M = 1.0e3  # coordinate of missing drones and cylinders


@dataclass(frozen=True, slots=True)
class SwarmWorld:
    """Sizes of room, cylinders and drones. x and y are measured from the room's middle, z from the floor."""

    drones: int = 8
    density: float = 0.2  # share of the 64 inner cells that hold a cylinder
    room_m: tuple[float, float, float] = (10.0, 10.0, 10.0)
    field_m: float = 8.0  # side of the square in which cylinders stand
    cylinder_m: float = 0.3  # radius of a cylinder
    arm_m: float = 0.04  # distance from the middle of a craft to a rotor
    low_m: float = 1.0  # lowest start or goal
    high_m: float = 3.0  # highest start or goal
    seconds: float = 15.0  # length of an episode
    reach_m: float = 0.5  # success: the mean distance to the goal over the last second is below this
    dt_s: float = 0.01

    @property
    def touch_drone_m(self) -> float:
        """Distance of middles below which two drones collide: two arm lengths (Huang et al.)."""
        return 2.0 * self.arm_m

    @property
    def touch_cylinder_m(self) -> float:
        """Distance from a cylinder's axis below which a drone collides."""
        return self.cylinder_m + self.arm_m

    @property
    def steps(self) -> int:
        """Number of steps of an episode."""
        return round(self.seconds / self.dt_s)

    @property
    def cells(self) -> int:
        """Number of cells in which a cylinder may stand."""
        return round(self.field_m / CELL_M) ** 2

    @property
    def most_cylinders(self) -> int:
        """Number of cylinders at the world's density."""
        return self.cylinders_at(self.density)

    def cylinders_at(self, density: float) -> int:
        """Number of cylinders at a density, 0 ... 1."""
        return round(density * self.cells)

    @property
    def floor_cells(self) -> int:
        """Number of cells of the whole floor."""
        return round(self.room_m[0] / CELL_M) * round(self.room_m[1] / CELL_M)

    def outside(self, position_m: Float[Tensor, "3 n"], margin_m: float = 0.0) -> Bool[Tensor, " n"]:
        """Mask of drones that touch walls, floor or ceiling; with a margin, that are so far beyond."""
        x, y, z = position_m
        reach = self.arm_m - margin_m
        flat = (x.abs() > self.room_m[0] / 2 - reach) | (y.abs() > self.room_m[1] / 2 - reach)
        found: Tensor = flat | (z < reach) | (z > self.room_m[2] - reach)
        return found


def arm_m(craft: Craft) -> float:
    """Distance [m] from the middle of a craft to its farthest rotor."""
    return max(math.hypot(x, y) for x, y in craft.rotors_m)


def check_world(world: SwarmWorld) -> None:
    """Raise ConfigError, with the bound, for a world that cannot be filled."""
    if not 0.0 <= world.density <= 1.0:
        raise ConfigError(
            f"density = {world.density:g} is out of range: expected 0 ... 1, the share of the {world.cells} "
            "inner cells that hold a cylinder."
        )
    if world.drones < 1:
        raise ConfigError(f"drones = {world.drones} must be at least 1.")
    free = world.floor_cells - world.most_cylinders
    if world.drones > free:
        raise ConfigError(
            f"{world.drones} drones do not fit: at density {world.density:g} the floor has {free} free "
            "cells, and every drone starts in a different one. Take fewer drones or a lower density."
        )
    lowest, highest = 0.5, world.room_m[2] - 0.5
    if not lowest <= world.low_m <= world.high_m <= highest:
        raise ConfigError(
            f"Heights from low_m = {world.low_m:g} to high_m = {world.high_m:g} m are out of range: expected "
            f"low_m <= high_m within {lowest:g} ... {highest:g} m, half a metre from floor and ceiling."
        )


class NearestObjects(NamedTuple):
    """Nearest other drones and cylinders of every drone, in the world; missing ones are at ABSENT_M."""

    drones: Float[Tensor, "6 k n"]  # position [m] and velocity [m/s] of other drones
    cylinders: Float[Tensor, "2 j n"]  # axes [m]
    drone_gap_m: Float[Tensor, " n"]  # distance to the nearest drone, middle to middle
    cylinder_gap_m: Float[Tensor, " n"]  # ... to the nearest axis


@torch.no_grad()
def nearest(
    motion: Float[Tensor, "6 n"], cylinders: Float[Tensor, "2 w m"], drones: int, others: int, around: int
) -> NearestObjects:
    """The `others` nearest drones and `around` nearest cylinders of every drone.

    motion: position [m] and velocity [m/s] of every drone in the world; cylinders: axes [m] in each of w
    worlds; drones: number of drones per world.
    """
    worlds = motion.shape[1] // drones
    position = motion[0:3].view(3, worlds, drones)
    found, gap = _nearest_drones(motion, position, min(others, drones - 1))
    near = motion.new_full((6, others, motion.shape[1]), ABSENT_M)
    near[3:] = 0.0
    near[:, : found.shape[1]] = found
    flat = position[0:2].permute(1, 2, 0)
    count = min(around, cylinders.shape[2])
    axes = motion.new_full((2, around, worlds, drones), ABSENT_M)
    cylinder_gap = motion.new_full((motion.shape[1],), ABSENT_M)
    if count:
        distance = (flat.unsqueeze(2) - cylinders.permute(1, 2, 0).unsqueeze(1)).square().sum(-1)  # (w, d, m)
        least, index = distance.topk(count, dim=2, largest=False)
        picked = (
            cylinders.unsqueeze(2)
            .expand(-1, -1, drones, -1)
            .gather(3, index.unsqueeze(0).expand(2, -1, -1, -1))
        )
        axes[:, :count] = picked.permute(0, 3, 1, 2)
        cylinder_gap = least[..., 0].sqrt().flatten()
    return NearestObjects(near, axes.flatten(2), gap, cylinder_gap)


def _nearest_drones(motion: Tensor, position: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns (motion (6, count, n) of the nearest other drones, distance (n,) to the nearest)."""
    _, worlds, drones = position.shape
    if count < 1:
        return motion.unsqueeze(1)[:, :0], motion.new_full((motion.shape[1],), ABSENT_M)
    distance = (position.unsqueeze(3) - position.unsqueeze(2)).square().sum(0)  # (w, d, d)
    distance.diagonal(dim1=1, dim2=2).fill_(ABSENT_M**2)
    least, index = distance.topk(count, dim=2, largest=False)
    first: Int64[Tensor, " w"] = torch.arange(worlds, device=motion.device) * drones
    columns = (index + first.view(-1, 1, 1)).permute(2, 0, 1).reshape(-1)
    return motion.index_select(1, columns).view(6, count, -1), least[..., 0].sqrt().flatten()
