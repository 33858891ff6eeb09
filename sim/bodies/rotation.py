"""Rotations of many bodies at once: unit quaternions wxyz, in the last axis; all other axes broadcast."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robo_rl.core.shapes import Float


def cross(a: Float[Tensor, "*#n 3"], b: Float[Tensor, "*#n 3"]) -> Float[Tensor, "*#n 3"]:
    product: Tensor = torch.linalg.cross(*torch.broadcast_tensors(a, b))
    return product


def multiply(a: Float[Tensor, "*#n 4"], b: Float[Tensor, "*#n 4"]) -> Float[Tensor, "*#n 4"]:
    """Quaternion product a b: the rotation b, then a."""
    aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    w = aw * bw - (av * bv).sum(-1, keepdim=True)
    return torch.cat([w, aw * bv + bw * av + cross(av, bv)], -1)


def conjugate(a: Float[Tensor, "*n 4"]) -> Float[Tensor, "*n 4"]:
    """Inverse rotation."""
    return torch.cat([a[..., :1], -a[..., 1:]], -1)


def rotate(a: Float[Tensor, "*#n 4"], v: Float[Tensor, "*#n 3"]) -> Float[Tensor, "*#n 3"]:
    """v rotated by a: v + 2 w (u x v) + 2 u x (u x v), with u the vector part."""
    twice = 2.0 * cross(a[..., 1:], v)
    return v + a[..., :1] * twice + cross(a[..., 1:], twice)


def to_rotvec(a: Float[Tensor, "*n 4"]) -> Float[Tensor, "*n 3"]:
    """Axis times angle [rad], the angle at most pi."""
    upper = torch.where(a[..., :1] < 0.0, -a, a)
    size = upper[..., 1:].norm(dim=-1, keepdim=True)
    angle = 2.0 * torch.atan2(size, upper[..., :1])
    return upper[..., 1:] * torch.where(size > 1e-9, angle / size.clamp_min(1e-9), 2.0)


def from_rotvec(v: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n 4"]:
    angle = v.norm(dim=-1, keepdim=True)
    return torch.cat([(0.5 * angle).cos(), 0.5 * v * torch.sinc(angle / (2.0 * math.pi))], -1)


def about_z(angle_rad: Float[Tensor, " *n"]) -> Float[Tensor, "*n 4"]:
    zero = torch.zeros_like(angle_rad)
    return torch.stack([(0.5 * angle_rad).cos(), zero, zero, (0.5 * angle_rad).sin()], -1)


def axis_z(a: Float[Tensor, "*n 4"]) -> Float[Tensor, "*n 3"]:
    """Direction of the body's z axis: the third column of its rotation matrix."""
    w, x, y, z = a.unbind(-1)
    return torch.stack([2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)], -1)


def yaw_of(a: Float[Tensor, "*n 4"]) -> Float[Tensor, " *n"]:
    """Heading of the body's x axis about the world's z axis [rad]."""
    w, x, y, z = a.unbind(-1)
    return torch.atan2(2.0 * (x * y + w * z), 1.0 - 2.0 * (y * y + z * z))
