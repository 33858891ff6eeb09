"""Which way to point the thrust, and how to turn there.

A wanted acceleration is a wanted thrust vector, m (a + g z^), whose direction is the wanted body z axis and whose
projection on the present one is the collective thrust; a yaw fixes the rest of the attitude. The attitude loop
turns tilt first: the shortest rotation that brings the z axis where it belongs, then yaw about it, so that a large yaw
error never bends the way of the thrust (Brescianini & D'Andrea, Tilt-prioritized quadrocopter attitude control, 2020).
"""

from __future__ import annotations

import torch
from torch import Tensor

from sim.engines.quad.control.gains import Gains
from sim.engines.quad.control.vectors import Axes, Vec, cross, dot, to_body, unit
from sim.engines.quad.craft import GRAVITY_M_S2, Craft


def thrust_vector(accel: Vec, axes: Axes, craft: Craft) -> tuple[Tensor, Vec]:
    """(collective thrust [N], wanted body z axis) for an acceleration [m/s^2, world]. Never pushes downwards."""
    force = (accel[0], accel[1], accel[2] + GRAVITY_M_S2)
    return (craft.mass_kg * dot(force, axes[2])).clamp(min=0.0), unit(force)


def frame(up: Vec, heading: Vec) -> Axes:
    """The attitude whose z axis is `up` and whose x axis points as far along `heading` (horizontal) as it can."""
    y = unit(cross(up, heading))
    return cross(y, up), y, up


def heading_of(yaw_rad: Tensor) -> Vec:
    return torch.cos(yaw_rad), torch.sin(yaw_rad), torch.zeros_like(yaw_rad)


def tilt_error(axes: Axes, up: Vec) -> tuple[Tensor, Tensor]:
    """Rotation about body x and y that brings the z axis to `up`, 2 sin(angle / 2) [rad for small angles]."""
    bx, by, bz = to_body(axes, up)
    share = torch.rsqrt((0.5 * (1.0 + bz)).clamp(min=1e-3))  # upside down the axis is anybody's guess: keep it finite
    return -share * by, share * bx


def yaw_error(axes: Axes, wanted: Axes) -> Tensor:
    """Angle [rad] about z that is left once the shortest rotation has brought the z axis where it belongs."""
    bx, by, bz = to_body(axes, wanted[2])
    x, y, z = to_body(axes, wanted[0])
    back = z / (1.0 + bz).clamp(min=1e-2)
    return torch.atan2(y - back * by, x - back * bx)


def attitude_rates(axes: Axes, wanted: Axes, gains: Gains) -> Vec:
    """Body rates [rad/s] that turn the craft to the wanted attitude."""
    ex, ey = tilt_error(axes, wanted[2])
    tilt, yaw = attitude_gains(gains)
    return tilt * ex, tilt * ey, yaw * yaw_error(axes, wanted)


def attitude_gains(gains: Gains) -> tuple[float, float]:
    """(tilt, yaw) [1/s] of the cascade whose inner loop has rates.rate_gains."""
    return 0.5 * gains.attitude_rad_s / gains.attitude_damping, 0.5 * gains.yaw_rad_s / gains.attitude_damping


def rotation_error(axes: Axes, wanted: Axes) -> Vec:
    """e_R = (Rd^T R - R^T Rd)^v / 2 [body], Lee, Leok & McClamroch 2010 and Mellinger & Kumar 2011 alike."""
    (x, y, z), (a, b, c) = axes, wanted  # columns: R^T Rd has the element dot(row's axis of R, column's of Rd)
    return 0.5 * (dot(y, c) - dot(z, b)), 0.5 * (dot(z, a) - dot(x, c)), 0.5 * (dot(x, b) - dot(y, a))
