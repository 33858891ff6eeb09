"""Cascaded PID: position -> velocity -> acceleration -> attitude -> body rates; each loop sets the next one.

    v* = v_ref + approach(p_ref - p)       a* = a_ref + kv (v* - v) + I,   I' = clip(ki (v* - v))
    attitude from a* + g and yaw             w* = ka (attitude error)        torque = J kr (w* - w) + w x J w

The cascade of PX4 and of the Crazyflie's position_controller_pid.c. The integral, which is the memory,
compensates a constant force (wind, a wrong mass, a discharged battery). It grows slowly, and stops where
limits reduce a*, so that it does not wind up on the way to a far point.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import POS, QUAT, VEL, xyz
from sim.flight.control.attitude import attitude_rates, heading_of, thrust_vector, wanted_frame
from sim.flight.control.controllers import REF_ACC, REF_POS, REF_VEL, REF_YAW, Controller
from sim.flight.control.gains import ControllerGains, gains_for, integral_gain
from sim.flight.control.position import approach, limit_acceleration, position_gains
from sim.flight.control.rates import make_outlet
from sim.flight.control.vectors import TINY, add, axes_of, clip_norm, dot, scale, sub


def make_pid(
    craft: Craft, dt_s: float, gains: ControllerGains | None = None, level: str = "motors"
) -> Controller:
    """PID controller. Memory (3, n): the acceleration [m/s^2, world] that the integral adds."""
    limits = gains or gains_for(craft, dt_s)
    _, kv = position_gains(limits)
    ki = integral_rate(limits)
    loop = make_outlet(level, craft, dt_s, limits)
    fastest = ki * limits.integral_error_m_s2 / kv  # growth of the integral [m/s^3]

    def law(state: Tensor, reference: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        axes, integral = axes_of(state[QUAT]), xyz(memory)
        towards = approach(sub(xyz(reference[REF_POS]), xyz(state[POS])), limits)
        missing_m_s = sub(add(xyz(reference[REF_VEL]), towards), xyz(state[VEL]))
        wanted = add(add(xyz(reference[REF_ACC]), integral), scale(kv, missing_m_s))
        accel = limit_acceleration(wanted, limits)
        thrust_n, up = thrust_vector(accel, axes, craft)
        rates = attitude_rates(wanted_frame(axes, up, heading_of(reference[REF_YAW])), limits)
        cut = sub(accel, wanted)
        counts = (1.0 - torch.sqrt(dot(cut, cut) + TINY) / limits.integral_error_m_s2).clamp(min=0.0)
        growth = clip_norm(scale(ki, missing_m_s), fastest)
        grown = torch.stack(add(integral, scale(dt_s * counts, growth)))
        bound = limits.max_integral_m_s2
        return loop(state, thrust_n, rates), grown.clamp(-bound, bound)

    return Controller(3, law)


def integral_rate(gains: ControllerGains) -> float:
    """ki [1/s^2] for which the slowest pole of s^3 + kv s^2 + (kx + ki) s + ki kp is at -integral w."""
    share, d = gains.integral, gains.damping
    return integral_gain(share, d) / (0.5 / d - share) * gains.position_rad_s**2
