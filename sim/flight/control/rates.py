"""Body-rate loop, the innermost loop of a flight controller: collective thrust and body rates to rotor
speeds.

    torque = J k (w_wanted - w) + w x J w

With the inertia J, k is a frequency [rad/s], independent of the craft's size; the second term compensates the
gyroscopic torque. There is no derivative term, because overdriven rotors (mixer.make_motors) need none.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import RATE, ROTOR, Vec, xyz
from sim.flight.control.gains import ControllerGains, gains_for
from sim.flight.control.mixer import make_motors

RateLoop = Callable[[Tensor, Tensor, Vec], Tensor]


def make_rate_loop(craft: Craft, dt_s: float, gains: ControllerGains | None = None) -> RateLoop:
    """loop(state (17, n), thrust_n (n,), rates 3 x (n,) [rad/s, body]) -> rotor commands (4, n), 0 ... 1."""
    gains = gains or gains_for(craft, dt_s)
    motors = make_motors(craft, dt_s, gains.rotor_s)
    roll, yaw = rate_gains(gains)

    def loop(state: Tensor, thrust_n: Tensor, wanted: Vec) -> Tensor:
        rate = xyz(state[RATE])
        wx, wy, wz = (w - r for w, r in zip(wanted, rate, strict=True))
        torque_nm = torque_for(craft, (roll * wx, roll * wy, yaw * wz), rate)
        return motors(thrust_n, torque_nm, state[ROTOR].unbind(0))

    return loop


def make_outlet(level: str, craft: Craft, dt_s: float, gains: ControllerGains) -> RateLoop:
    """Last stage of a cascade: a rate loop, or at level=rates its inputs (4, n) [weights, rad/s]."""
    if level == "motors":
        return make_rate_loop(craft, dt_s, gains)
    per_newton = 1.0 / (craft.mass_kg * GRAVITY_M_S2)
    return lambda state, thrust_n, wanted: torch.stack([per_newton * thrust_n, *wanted])


def rate_gains(gains: ControllerGains) -> tuple[float, float]:
    """Gains (roll and pitch, yaw) [1/s]: with attitude gains w / (2 d) the attitude has damping ratio d."""
    return 2.0 * gains.attitude_damping * gains.attitude_rad_s, 2.0 * gains.attitude_damping * gains.yaw_rad_s


def torque_for(craft: Craft, accel: Vec, rate: Vec) -> Vec:
    """Torque J accel + rate x J rate [N m, body] for an angular acceleration [rad/s^2] at a rate [rad/s]."""
    (jx, jy, jz), (ax, ay, az), (wx, wy, wz) = craft.inertia_kg_m2, accel, rate
    return (
        jx * ax + (jz - jy) * wy * wz,
        jy * ay + (jx - jz) * wz * wx,
        jz * az + (jy - jx) * wx * wy,
    )
