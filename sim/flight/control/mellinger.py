"""Mellinger & Kumar, Minimum snap trajectory generation and control for quadrotors, ICRA 2011, in the form of
the Crazyflie's firmware (crazyflie-firmware, src/modules/src/controller/controller_mellinger.c).

    F = m (Kp ep + Kv ev + Ki int(ep) + g z^ + a_ref)     u1 = F . zB     zB* = F / |F|
    yB* = zB* x xC / |zB* x xC|,  xC = (cos yaw, sin yaw, 0),  xB* = yB* x zB*
    eR = (R*^T R - R^T R*)^v / 2     M = J (-KR eR + Kw (w* - w) - Kim int(eR)) + w x J w

The integrals are the firmware's addition to the paper: of the position error and, with its default gains, of
the attitude error about z. w* is zero, as for set-points without rates. The firmware's derivative of the
rates is left out, because overdriven rotors need none; the gyroscopic term of the paper is included. In
addition to the firmware's clamp, the position integral limits the error that it counts, so that it does not
wind up on the way to a far point.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import POS, QUAT, RATE, ROTOR, xyz
from sim.flight.control.attitude import heading_of, rotation_error, thrust_vector, wanted_frame
from sim.flight.control.controllers import REF_POS, REF_YAW, Controller
from sim.flight.control.gains import ControllerGains, gains_for, integral_gain
from sim.flight.control.geometric import attitude_torque
from sim.flight.control.mixer import make_motors
from sim.flight.control.position import pd_acceleration
from sim.flight.control.vectors import axes_of, clip_norm, scale, sub

YAW_INTEGRAL = 0.1  # frequency of the yaw integral's pole, as a share of yaw_rad_s
COUNTED_YAW_RAD = 0.1  # largest yaw error that the integral counts
MAX_YAW_BIAS_RAD = 0.3  # largest torque of the integral, as the yaw error that gives it


def make_mellinger(craft: Craft, dt_s: float, gains: ControllerGains | None = None) -> Controller:
    """Mellinger controller. Memory (4, n): integrals of position error [m s, world] and yaw error [rad s]."""
    limits = gains or gains_for(craft, dt_s)
    motors = make_motors(craft, dt_s, limits.rotor_s)
    ki = integral_gain(limits.integral, limits.damping) * limits.position_rad_s**3
    kim = integral_gain(YAW_INTEGRAL, limits.attitude_damping) * limits.yaw_rad_s
    bound = limits.max_integral_m_s2 / ki
    # Two thirds of PID's limit, because the integral of the error does not take the velocity into account.
    largest_m = limits.integral_error_m_s2 / (1.5 * limits.position_rad_s**2)

    def law(state: Tensor, reference: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        axes, rate = axes_of(state[QUAT]), xyz(state[RATE])
        accel = pd_acceleration(state, reference, limits, extra=scale(ki, xyz(memory[0:3])))
        thrust_n, up = thrust_vector(accel, axes, craft)
        x, y, z = rotation_error(wanted_frame(axes, up, heading_of(reference[REF_YAW])))
        still = torch.zeros_like(z)
        # A torque of -J kyaw (eR + kim int) is the torque of an error increased by the integral.
        torque_nm = attitude_torque(craft, limits, (x, y, z + kim * memory[3]), rate, (still, still, still))
        error = clip_norm(sub(xyz(reference[REF_POS]), xyz(state[POS])), largest_m)
        sums = (torch.stack(error) * dt_s + memory[0:3]).clamp(-bound, bound)
        turned = memory[3] + dt_s * z.clamp(-COUNTED_YAW_RAD, COUNTED_YAW_RAD)
        turned = turned.clamp(-MAX_YAW_BIAS_RAD / kim, MAX_YAW_BIAS_RAD / kim)
        return motors(thrust_n, torque_nm, state[ROTOR].unbind(0)), torch.cat([sums, turned[None]])

    return Controller(4, law)
