"""Poses of many bodies at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.bodies.rotation import conjugate, multiply, to_rotvec


class Pose(NamedTuple):
    """m: position; quat: orientation wxyz, body -> world."""

    m: Float[Tensor, "*n 3"]
    quat: Float[Tensor, "*n 4"]


def pose_error(goal: Pose, now: Pose) -> Float[Tensor, "n 6"]:
    """Position error [m] and rotation vector [rad] from `now` to `goal`, in the world frame."""
    return torch.cat([goal.m - now.m, to_rotvec(multiply(goal.quat, conjugate(now.quat)))], -1)
