"""Point clouds in the world frame from depth pictures, and points of the world in pictures.

A pinhole camera without distortion, x to the right, y up, looking along -z (OpenGL's and MuJoCo's frame);
pixel centres have half-integer coordinates.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.bodies.pose import Pose
from sim.bodies.rotation import conjugate, rotate
from sim.render.projection import NEAREST_M, OUTSIDE


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


def in_pictures(place_m: Float[Tensor, "n 3"], camera: Pose, fovy_rad: float) -> Float[Tensor, "n 2"]:
    """`sim.render.projection.in_picture` in batches, for a square picture and a point [m; world frame] of
    each world. camera: position (n, 3), quaternion wxyz (n, 4).
    """
    right_m, up_m, back_m = rotate(conjugate(camera.quat), place_m - camera.m).unbind(-1)
    half_m = math.tan(0.5 * fovy_rad) * (-back_m).clamp_min(NEAREST_M)
    place = torch.stack([right_m / half_m, -up_m / half_m], -1)
    return place.clamp(-OUTSIDE, OUTSIDE).nan_to_num(OUTSIDE)  # also of a world that has diverged
