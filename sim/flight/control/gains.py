"""Natural frequencies of the loops of a flight controller, computed from the craft for all controllers.

The loops are nested: rotors; body rates and attitude; velocity and position. Each needs an inner loop that is
several times faster. So the lag of the rotors and the time step, or the torque of the rotors, limit the
frequency of the attitude, and this limits that of the position. Each controller computes its gains from these
frequencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import GRAVITY_M_S2, Craft

FASTEST_ATTITUDE_RAD_S = 25.0  # limit for crafts whose model has no rotor lag
FASTEST_ROTOR_S = (
    0.015  # least time constant of overdriven rotors: with a smaller one commands would saturate
)
FULL_TORQUE_RAD = 0.5  # error of attitude or yaw that may command the full torque available at hover
USABLE_THRUST = 0.95  # share of full thrust available to manoeuvres; the rest is left to the attitude


@dataclass(frozen=True, slots=True)
class ControllerGains:
    """Natural frequencies [rad/s], damping ratios and limits from which controllers compute their gains."""

    rotor_s: float  # time constant of the overdriven rotors, see mixer.make_motors
    attitude_rad_s: float  # roll and pitch
    yaw_rad_s: float
    position_rad_s: float
    max_tilt_rad: float  # of the commanded thrust
    max_climb_m_s2: float
    max_sink_m_s2: float
    max_accel_m_s2: float  # commanded thrust over mass, gravity included
    brake_m_s2: float  # deceleration assumed on the way to a far point
    max_speed_m_s: float = 5.0  # on the way to a far point
    damping: float = 1.0  # of the position
    attitude_damping: float = (
        0.8  # below 1, because the position loop suffers more from lag than from overshoot
    )
    integral: float = 1.0 / 3.0  # frequency of the integrals' pole, as a share of the position's, below 1 / 2
    # Largest error that integrals count, times the square of the position's frequency.
    integral_error_m_s2: float = 0.3
    max_integral_m_s2: float = 0.5 * GRAVITY_M_S2  # largest acceleration of the integrals


def gains_for(craft: Craft, dt_s: float) -> ControllerGains:
    """Gains of a craft that is controlled every `dt_s`. Raises ConfigError for a step that is not above 0.

    The lag T of the attitude is that of the rotors plus one step. With 0.33 / T for the attitude and a fifth
    of it for the position, all modes of all controllers on all crafts have a damping ratio of at least 0.44
    (eigenvalues of the sampled loop).
    """
    if not dt_s > 0.0:
        raise ConfigError(
            f"dt_s = {dt_s:g} must be above 0: it is the time between two commands, in seconds."
        )
    rotor_s = min(max(craft.rise_s, craft.fall_s), max(FASTEST_ROTOR_S, dt_s))
    roll, pitch, yaw = authority_rad_s2(craft)
    attitude = min(
        0.33 / (rotor_s + dt_s), math.sqrt(min(roll, pitch) / FULL_TORQUE_RAD), FASTEST_ATTITUDE_RAD_S
    )
    position = attitude / 5.0
    accel = USABLE_THRUST * craft.thrust_to_weight * GRAVITY_M_S2
    climb, sink = 0.7 * max(accel - GRAVITY_M_S2, 0.1), 0.5 * GRAVITY_M_S2
    tilt = min(0.7, math.acos(min(0.995, GRAVITY_M_S2 / accel)))
    return ControllerGains(
        rotor_s=rotor_s,
        attitude_rad_s=attitude,
        yaw_rad_s=min(0.5 * attitude, math.sqrt(yaw / FULL_TORQUE_RAD)),
        position_rad_s=position,
        max_tilt_rad=tilt,
        max_climb_m_s2=climb,
        max_sink_m_s2=sink,
        max_accel_m_s2=accel,
        brake_m_s2=0.5 * min(climb, sink, GRAVITY_M_S2 * math.tan(tilt)),
    )


def authority_rad_s2(craft: Craft) -> tuple[float, float, float]:
    """Largest roll, pitch and yaw acceleration at hover, with a thrust that still carries the craft."""
    hover_n = craft.mass_kg * GRAVITY_M_S2 / 4.0
    spare_n = min(hover_n - craft.thrust_n[0], sum(craft.thrust_n) - hover_n)
    jx, jy, jz = craft.inertia_kg_m2
    roll = spare_n * sum(abs(y) for _, y in craft.rotors_m) / jx
    pitch = spare_n * sum(abs(x) for x, _ in craft.rotors_m) / jy
    return roll, pitch, 4.0 * spare_n * craft.torque_per_thrust_m / jz


def integral_gain(share: float, damping: float) -> float:
    """a for which s^3 + 2 d s^2 + s + a has a pole at -share: integral gain in units of frequency^3."""
    return share * (share * share - 2.0 * damping * share + 1.0)
