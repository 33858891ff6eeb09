"""Outer loop of a controller: from position error to an acceleration that the craft can fly.

Two limits keep the inner loops linear for any reference. A far point is approached only as fast as the craft
can brake, v = sqrt(2 a (r - r0 / 2)) beyond r0 = a / k^2 and v = k r within; the acceleration is limited by
tilt and thrust, with priority for height. For controllers with a PD law, the error to a far point is
shortened so that they fly with that v.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sim.engines.quad.craft import GRAVITY_M_S2
from sim.engines.quad.layout import POS, VEL, Vec, xyz
from sim.flight.control.controllers import REF_ACC, REF_POS, REF_VEL
from sim.flight.control.gains import ControllerGains
from sim.flight.control.vectors import TINY, add, dot, scale, sub


def position_gains(gains: ControllerGains) -> tuple[float, float]:
    """Gains (kx [1/s^2], kv [1/s]) of the PD law x'' = -kx x - kv x'."""
    return gains.position_rad_s**2, 2.0 * gains.damping * gains.position_rad_s


def approach(error_m: Vec, gains: ControllerGains) -> Vec:
    """Velocity [m/s] towards a point at the offset `error_m`."""
    kx, kv = position_gains(gains)
    gain, brake = kx / kv, gains.brake_m_s2
    distance = torch.sqrt(dot(error_m, error_m) + TINY)
    braked = torch.sqrt((2.0 * brake * distance - (brake / gain) ** 2).clamp(min=TINY))
    far = torch.where(distance > brake / gain**2, braked / distance, gain)
    return scale(torch.minimum(far, gains.max_speed_m_s / distance), error_m)


def near(error_m: Vec, gains: ControllerGains) -> Vec:
    """The error [m] for which a PD law approaches with the speed of `approach`."""
    kx, kv = position_gains(gains)
    return scale(kv / kx, approach(error_m, gains))


def pd_acceleration(
    state: Tensor, reference: Tensor, gains: ControllerGains, extra: Vec | None = None
) -> Vec:
    """Acceleration [m/s^2, world] of the PD law plus `extra`, within the craft's limits."""
    kx, kv = position_gains(gains)
    error = near(sub(xyz(reference[REF_POS]), xyz(state[POS])), gains)
    velocity_error = sub(xyz(reference[REF_VEL]), xyz(state[VEL]))
    wanted = add(add(scale(kx, error), scale(kv, velocity_error)), xyz(reference[REF_ACC]))
    return limit_acceleration(wanted if extra is None else add(wanted, extra), gains)


def limit_acceleration(accel: Vec, gains: ControllerGains) -> Vec:
    """Acceleration [m/s^2, world] within the craft's limits: the vertical part has priority."""
    ax, ay, az = accel
    az = az.clamp(-gains.max_sink_m_s2, gains.max_climb_m_s2)
    up = az + GRAVITY_M_S2
    side = torch.minimum(
        math.tan(gains.max_tilt_rad) * up, (gains.max_accel_m_s2**2 - up * up).clamp(min=TINY).sqrt()
    )
    share = (side * torch.rsqrt(ax * ax + ay * ay + TINY)).clamp(max=1.0)
    return share * ax, share * ay, az
