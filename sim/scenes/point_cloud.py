"""Point clouds in the world frame from depth pictures.

A pinhole camera without distortion, x to the right, y up, looking along -z (OpenGL's and MuJoCo's frame);
pixel centres have half-integer coordinates.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.bodies.pose import Pose
from sim.bodies.rotation import rotate


def rays(height: int, width: int, fovy_rad: float) -> Float[Tensor, "h w 3"]:
    """Direction of each pixel in the camera's frame, with -1 along its z axis; the first row on top."""
    focal_px = 0.5 * height / math.tan(0.5 * fovy_rad)
    across = (torch.arange(width) + 0.5 - 0.5 * width) / focal_px
    up = (0.5 * height - torch.arange(height) - 0.5) / focal_px
    ahead = -torch.ones(height, width)
    return torch.stack([across.expand_as(ahead), up[:, None].expand_as(ahead), ahead], -1)


def cloud(
    depth_m: Float[Tensor, "h w"], rays: Float[Tensor, "h w 3"], camera: Pose,
    low_m: Float[Tensor, " 3"], high_m: Float[Tensor, " 3"], count: int,
) -> Float[Tensor, "p 3"]:  # fmt: skip
    """`count` points within the box, sampled evenly over the visible ones, row by row.

    Fewer points are repeated; without any the result is zero. camera: position (3,), quaternion wxyz (4,), in
    the world.
    """
    points = camera.m + rotate(camera.quat, depth_m[..., None] * rays)
    inside = ((points >= low_m) & (points <= high_m)).all(-1)
    found = points[inside]
    if len(found) == 0:
        return points.new_zeros(count, 3)
    return found[torch.arange(count) * len(found) // count]
