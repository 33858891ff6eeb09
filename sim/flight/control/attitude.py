"""Desired attitude for an acceleration, and body rates that turn the craft to it.

A desired acceleration a gives the thrust vector m (a + g z^). Its direction is the desired body z axis, its
projection on the current z axis the collective thrust; a yaw fixes the rest of the attitude. The attitude
loop gives tilt priority: the shortest rotation that aligns the z axis, then yaw about it, so that a large yaw
error does not disturb the thrust direction (Brescianini & D'Andrea, Tilt-prioritized quadrocopter attitude
control, 2020).

All computations are in body axes, where the current attitude is the identity: this halves the arithmetic and
keeps expressions short for the compiler, which inlines them wherever they are used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import Vec
from sim.flight.control.gains import ControllerGains
from sim.flight.control.vectors import Axes, cross, dot, to_body, unit


def thrust_vector(accel: Vec, axes: Axes, craft: Craft) -> tuple[Tensor, Vec]:
    """Collective thrust [N, >= 0] and desired body z axis [world] for an acceleration [m/s^2, world]."""
    force = (accel[0], accel[1], accel[2] + GRAVITY_M_S2)
    return (craft.mass_kg * dot(force, axes[2])).clamp(min=0.0), unit(force)


def heading_of(yaw_rad: Tensor) -> Vec:
    """Horizontal unit vector [world] in the direction of a yaw."""
    return torch.cos(yaw_rad), torch.sin(yaw_rad), torch.zeros_like(yaw_rad)


def wanted_frame(axes: Axes, up: Vec, heading: Vec) -> Axes:
    """Columns of R^T Rd, the desired axes in body axes: z is `up`, x as close to `heading` as possible."""
    z = to_body(axes, up)
    y = unit(cross(z, to_body(axes, heading)))
    return cross(y, z), y, z


def tilt_error(up: Vec) -> tuple[Tensor, Tensor]:
    """Rotation about body x and y that brings the z axis to `up` [body]: 2 sin(angle / 2) per axis."""
    x, y, z = up
    share = torch.rsqrt((0.5 * (1.0 + z)).clamp(min=1e-3))  # finite upside down, where the axis is undefined
    return -share * y, share * x


def yaw_error(wanted: Axes) -> Tensor:
    """Angle [rad] about z that remains after the shortest rotation has aligned the z axis."""
    (x, y, z), _, up = wanted
    back = z / (1.0 + up[2]).clamp(min=1e-2)
    return torch.atan2(y - back * up[1], x - back * up[0])


def attitude_rates(wanted: Axes, gains: ControllerGains) -> Vec:
    """Body rates [rad/s] that turn the craft to the desired attitude, given by `wanted_frame`."""
    ex, ey = tilt_error(wanted[2])
    tilt, yaw = attitude_gains(gains)
    return tilt * ex, tilt * ey, yaw * yaw_error(wanted)


def attitude_gains(gains: ControllerGains) -> tuple[float, float]:
    """Gains (tilt, yaw) [1/s] of the attitude loop around a rate loop with rates.rate_gains."""
    return 0.5 * gains.attitude_rad_s / gains.attitude_damping, 0.5 * gains.yaw_rad_s / gains.attitude_damping


def rotation_error(wanted: Axes) -> Vec:
    """e_R = (Rd^T R - R^T Rd)^v / 2 [body], as in Lee, Leok & McClamroch 2010 and Mellinger & Kumar 2011."""
    a, b, c = wanted
    return 0.5 * (c[1] - b[2]), 0.5 * (a[2] - c[0]), 0.5 * (b[0] - a[1])
