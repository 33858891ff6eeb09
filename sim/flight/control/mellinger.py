"""Mellinger & Kumar, Minimum snap trajectory generation and control for quadrotors, ICRA 2011, in the form
that the Crazyflie flies (crazyflie-firmware, src/modules/src/controller/controller_mellinger.c).

    F = m (Kp ep + Kv ev + Ki int(ep) + g z^ + a_ref)     u1 = F . zB     zB* = F / |F|
    yB* = zB* x xC / |zB* x xC|,  xC = (cos yaw, sin yaw, 0),  xB* = yB* x zB*
    eR = (R*^T R - R^T R*)^v / 2     M = J (-KR eR + Kw (w* - w) - Kim int(eR)) + w x J w

The integrals are the firmware's addition to the paper: of the position error, and, as its default gains have
it, of the attitude error about z only. w* is zero, as where no rates come with the set-point. The firmware's
derivative of the rates is left out (the overdriven rotors need none), the gyroscopic term of the paper kept.
The position integral counts large errors as smaller ones, on top of the firmware's clamp: it is slow, and
should not wind up on the way.
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
COUNTED_YAW_RAD = 0.1  # larger yaw errors count as this one
MAX_YAW_BIAS_RAD = 0.3  # of yaw error whose torque that integral may hold


def make_mellinger(craft: Craft, dt_s: float, gains: ControllerGains | None = None) -> Controller:
    """Memory, 4 rows: integral of the position error [m s, world], and of the attitude error about z [rad
    s].
    """
    limits = gains or gains_for(craft, dt_s)
    motors = make_motors(craft, dt_s, limits.rotor_s)
    ki = integral_gain(limits.integral, limits.damping) * limits.position_rad_s**3
    kim = integral_gain(YAW_INTEGRAL, limits.attitude_damping) * limits.yaw_rad_s
    bound = limits.max_integral_m_s2 / ki
    # Two thirds of what PID counts: an integral of the error alone does not see that the craft is already on
    # its way.
    largest_m = limits.integral_error_m_s2 / (1.5 * limits.position_rad_s**2)

    def law(state: Tensor, reference: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        axes, rate = axes_of(state[QUAT]), xyz(state[RATE])
        accel = pd_acceleration(state, reference, limits, extra=scale(ki, xyz(memory[0:3])))
        thrust_n, up = thrust_vector(accel, axes, craft)
        x, y, z = rotation_error(wanted_frame(axes, up, heading_of(reference[REF_YAW])))
        still = torch.zeros_like(z)
        # A torque of -J kyaw (eR + kim int) is that of an error which is larger by the integral.
        torque_nm = attitude_torque(craft, limits, (x, y, z + kim * memory[3]), rate, (still, still, still))
        error = clip_norm(sub(xyz(reference[REF_POS]), xyz(state[POS])), largest_m)
        sums = (torch.stack(error) * dt_s + memory[0:3]).clamp(-bound, bound)
        turned = memory[3] + dt_s * z.clamp(-COUNTED_YAW_RAD, COUNTED_YAW_RAD)
        turned = turned.clamp(-MAX_YAW_BIAS_RAD / kim, MAX_YAW_BIAS_RAD / kim)
        return motors(thrust_n, torque_nm, state[ROTOR].unbind(0)), torch.cat([sums, turned[None]])

    return Controller(4, law)
