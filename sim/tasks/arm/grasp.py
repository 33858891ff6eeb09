"""Grasping cubes with a two-finger hand: alignment with a cube, and the approach from above."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.bodies.rotation import yaw_of
from sim.bodies.scene_view import ToolAndObjects

ABOVE_M = 0.08  # height over a cube at which the tool aligns with it


def heading(view: ToolAndObjects) -> Float[Tensor, "n 2"]:
    """(cos, sin) of the tool's heading."""
    yaw = yaw_of(view.tool.quat)
    return torch.stack([yaw.cos(), yaw.sin()], -1)


def quarter_turn_left(view: ToolAndObjects, cube: str) -> Float[Tensor, " n"]:
    """Angle [rad] about the vertical that aligns the fingers with faces of a cube, in (-pi/4, pi/4)."""
    apart = yaw_of(view.object_pose(cube).quat) - yaw_of(view.tool.quat)
    quarter = math.pi / 2
    return torch.remainder(apart + quarter / 2, quarter) - quarter / 2


def around(
    view: ToolAndObjects, cube: str, left: Float[Tensor, " n"]
) -> tuple[Float[Tensor, "n 3"], Bool[Tensor, " n"]]:
    """Approach of a cube: over it and aligned first, then down.

    Returns (next goal of the tool [m], mask of worlds whose fingers are around the cube). left: angle that is
    left, by `quarter_turn_left`.
    """
    offset_m = view.object_pose(cube).m - view.tool.m
    aside_m = offset_m[:, :2].norm(dim=-1)
    there = (aside_m < 0.012) & (left.abs() < 0.15) & (-offset_m[:, 2] < 0.012)
    over = (aside_m < 0.02) & (left.abs() < 0.2)
    above_m = torch.where(over | there, 0.0, ABOVE_M)
    return view.object_pose(cube).m + torch.nn.functional.pad(above_m[:, None], (2, 0)), there
