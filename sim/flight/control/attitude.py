"""Which way to point the thrust, and how to turn there.

A wanted acceleration is a wanted thrust vector, m (a + g z^), whose direction is the wanted body z axis and
whose projection on the present one is the collective thrust; a yaw fixes the rest of the attitude. The
attitude loop turns tilt first: the shortest rotation that brings the z axis where it belongs, then yaw about
it, so that a large yaw error never bends the way of the thrust (Brescianini & D'Andrea, Tilt-prioritized
quadrocopter attitude control, 2020).

All of it is worked out in the body's axes, where the present attitude is the identity: half the arithmetic,
and short expressions for the compiler, which writes them out again wherever they are used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import Vec
from sim.flight.control.gains import ControllerGains
from sim.flight.control.vectors import Axes, cross, dot, to_body, unit


def thrust_vector(accel: Vec, axes: Axes, craft: Craft) -> tuple[Tensor, Vec]:
    """(collective thrust [N], wanted body z axis) for an acceleration [m/s^2, world]. Never pushes
    downwards.
    """
    force = (accel[0], accel[1], accel[2] + GRAVITY_M_S2)
    return (craft.mass_kg * dot(force, axes[2])).clamp(min=0.0), unit(force)


def heading_of(yaw_rad: Tensor) -> Vec:
    return torch.cos(yaw_rad), torch.sin(yaw_rad), torch.zeros_like(yaw_rad)


def wanted_frame(axes: Axes, up: Vec, heading: Vec) -> Axes:
    """Columns of R^T Rd: the wanted axes as the body sees them. z is `up`, x as far along `heading` as it can
    be.
    """
    z = to_body(axes, up)
    y = unit(cross(z, to_body(axes, heading)))
    return cross(y, z), y, z


def tilt_error(up: Vec) -> tuple[Tensor, Tensor]:
    """Rotation about body x and y that brings the z axis to `up` [body], 2 sin(angle / 2) [rad for small
    angles].
    """
    x, y, z = up
    share = torch.rsqrt(
        (0.5 * (1.0 + z)).clamp(min=1e-3)
    )  # upside down the axis is anybody's guess: keep it finite
    return -share * y, share * x


def yaw_error(wanted: Axes) -> Tensor:
    """Angle [rad] about z that is left once the shortest rotation has brought the z axis where it belongs."""
    (x, y, z), _, up = wanted
    back = z / (1.0 + up[2]).clamp(min=1e-2)
    return torch.atan2(y - back * up[1], x - back * up[0])


def attitude_rates(wanted: Axes, gains: ControllerGains) -> Vec:
    """Body rates [rad/s] that turn the craft to the wanted attitude, given by `wanted_frame`."""
    ex, ey = tilt_error(wanted[2])
    tilt, yaw = attitude_gains(gains)
    return tilt * ex, tilt * ey, yaw * yaw_error(wanted)


def attitude_gains(gains: ControllerGains) -> tuple[float, float]:
    """(tilt, yaw) [1/s] of the cascade whose inner loop has rates.rate_gains."""
    return 0.5 * gains.attitude_rad_s / gains.attitude_damping, 0.5 * gains.yaw_rad_s / gains.attitude_damping


def rotation_error(wanted: Axes) -> Vec:
    """e_R = (Rd^T R - R^T Rd)^v / 2 [body], Lee, Leok & McClamroch 2010 and Mellinger & Kumar 2011 alike."""
    a, b, c = wanted
    return 0.5 * (c[1] - b[2]), 0.5 * (a[2] - c[0]), 0.5 * (b[0] - a[1])
