"""Vectors as three tensors (n,), one per component, which a compiled loop keeps in registers."""

from __future__ import annotations

import torch
from torch import Tensor

from sim.engines.quad.layout import Vec

Axes = tuple[Vec, Vec, Vec]  # the body's x, y and z axis in the world: the columns of R
TINY = 1e-9  # under square roots: a gradient there stays finite


def add(a: Vec, b: Vec) -> Vec:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def sub(a: Vec, b: Vec) -> Vec:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]


def scale(k: float | Tensor, a: Vec) -> Vec:
    return k * a[0], k * a[1], k * a[2]


def dot(a: Vec, b: Vec) -> Tensor:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vec, b: Vec) -> Vec:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def unit(a: Vec) -> Vec:
    return scale(torch.rsqrt(dot(a, a) + TINY), a)


def clip_norm(a: Vec, limit: float) -> Vec:
    """The vector, shortened to the length `limit` where it is longer."""
    return scale((limit * torch.rsqrt(dot(a, a) + TINY)).clamp(max=1.0), a)


def to_body(axes: Axes, a: Vec) -> Vec:
    """R^T a: a vector of the world in body axes."""
    return dot(axes[0], a), dot(axes[1], a), dot(axes[2], a)


def axes_of(quat: Tensor) -> Axes:
    """The body's axes in the world, from quaternions (4, n), wxyz, body -> world."""
    w, x, y, z = quat.unbind(0)
    return (
        (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z), 2.0 * (x * z - w * y)),
        (2.0 * (x * y - w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z + w * x)),
        (2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)),
    )
