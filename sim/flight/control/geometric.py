"""Geometric tracking control on SE(3): Lee, Leok & McClamroch, Geometric tracking control of a quadrotor UAV
on SE(3), CDC 2010, position-controlled flight mode (doi 10.1109/CDC.2010.5717652), written with z up.

    A = m (-kx ex - kv ev + g z^ + a_ref)     f = A . R z^     b3 = A / |A|, b1: heading projected on it
    eR = (Rd^T R - R^T Rd)^v / 2              eW = W - R^T Rd Wd
    M = J (-kR eR - kW eW) + W x J W - J (W x R^T Rd Wd - R^T Rd Wd')

Deviations from the paper: the gains kR, kW multiply J, so that they are frequencies. Wd is computed from A',
and A' from a low-passed A (the memory), because the reference has no jerk and the acceleration is not
measured; Wd' is left out. f is at least zero, because rotors cannot pull, and A is limited to what the craft
can fly. As in the paper, the craft recovers slowly from upside down, because eR grows with the sine of the
angle.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import QUAT, RATE, ROTOR, Vec, xyz
from sim.flight.control.attitude import heading_of, rotation_error, thrust_vector, wanted_frame
from sim.flight.control.controllers import REF_YAW, Controller
from sim.flight.control.gains import ControllerGains, gains_for
from sim.flight.control.mixer import make_motors
from sim.flight.control.position import pd_acceleration
from sim.flight.control.rates import make_outlet, rate_gains, torque_for
from sim.flight.control.vectors import TINY, Axes, add, axes_of, clip_norm, cross, dot, scale, sub, to_body


def make_geometric(
    craft: Craft, dt_s: float, gains: ControllerGains | None = None, level: str = "motors"
) -> Controller:
    """Geometric controller. Memory (3, n): low-passed desired acceleration [m/s^2, world].

    A constant force leaves a constant position error, force / (m kx). At level=rates the output is the body
    rates from which a rate loop with the gain kW makes M: Wd - (kR eR + W x Wd) / kW.
    """
    # The feed-forward Wd reduces the lag, so the attitude can have full damping.
    limits = gains or replace(gains_for(craft, dt_s), attitude_damping=1.0)
    motors, outlet = make_motors(craft, dt_s, limits.rotor_s), make_outlet(level, craft, dt_s, limits)
    lag_s = 0.5 / limits.attitude_rad_s  # of the low-pass filter: as fast as the attitude can follow
    share = -math.expm1(-dt_s / lag_s)

    def law(state: Tensor, reference: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        axes, rate = axes_of(state[QUAT]), xyz(state[RATE])
        accel = pd_acceleration(state, reference, limits)
        thrust_n, up = thrust_vector(accel, axes, craft)
        heading = heading_of(reference[REF_YAW])
        wanted = wanted_frame(axes, up, heading)
        passed = xyz(memory)
        passed = add(passed, scale(share, sub(accel, passed)))
        jerk = to_body(axes, scale(1.0 / lag_s, sub(accel, passed)))
        turning = turning_rate(accel, jerk, wanted, to_body(axes, heading))
        ahead = clip_norm(turning, 0.5 * limits.attitude_rad_s)
        if level != "motors":
            rates = add(
                rate, scaled_rates(attitude_accel(limits, rotation_error(wanted), rate, ahead), limits)
            )
            return outlet(state, thrust_n, rates), torch.stack(passed)
        torque_nm = attitude_torque(craft, limits, rotation_error(wanted), rate, ahead)
        return motors(thrust_n, torque_nm, state[ROTOR].unbind(0)), torch.stack(passed)

    return Controller(3, law)


def attitude_torque(craft: Craft, gains: ControllerGains, error: Vec, rate: Vec, ahead: Vec) -> Vec:
    """Torque [N m, body] of the PD law on SO(3); error: e_R, rate: W, ahead: R^T Rd Wd [rad/s, body]."""
    return torque_for(craft, attitude_accel(gains, error, rate, ahead), rate)


def attitude_accel(gains: ControllerGains, error: Vec, rate: Vec, ahead: Vec) -> Vec:
    """Angular acceleration [rad/s^2, body] of the PD law on SO(3), as in `attitude_torque`."""
    tilt, yaw = gains.attitude_rad_s**2, gains.yaw_rad_s**2
    tilt_rate, yaw_rate = rate_gains(gains)
    slow, swept = sub(ahead, rate), cross(rate, ahead)
    return (
        -tilt * error[0] + tilt_rate * slow[0] - swept[0],
        -tilt * error[1] + tilt_rate * slow[1] - swept[1],
        -yaw * error[2] + yaw_rate * slow[2] - swept[2],
    )


def scaled_rates(accel: Vec, gains: ControllerGains) -> Vec:
    """Excess of commanded over current rates [rad/s] for which a rate loop gives this acceleration."""
    tilt_rate, yaw_rate = rate_gains(gains)
    x, y, z = accel
    return x / tilt_rate, y / tilt_rate, z / yaw_rate


def turning_rate(accel: Vec, jerk: Vec, wanted: Axes, heading: Vec) -> Vec:
    """R^T Rd Wd [rad/s, body]: rates of the desired attitude for an acceleration that changes with `jerk`.

    The yaw is constant. jerk [m/s^3], wanted and heading are in body axes; of the acceleration [m/s^2, world]
    only the magnitude matters. b3' = (A' - (A' . b3) b3) / |A|, so x and y are -b3' . b2 and b3' . b1; z is
    -b1 . (b3' x heading) / |b3 x heading|.
    """
    b1, b2, b3 = wanted
    force = (accel[0], accel[1], accel[2] + GRAVITY_M_S2)
    moved = scale((dot(force, force) + TINY).rsqrt(), sub(jerk, scale(dot(jerk, b3), b3)))
    across = cross(b3, heading)
    z = -dot(b1, cross(moved, heading)) * (dot(across, across) + TINY).rsqrt()
    return add(add(scale(-dot(moved, b2), b1), scale(dot(moved, b1), b2)), scale(z, b3))
