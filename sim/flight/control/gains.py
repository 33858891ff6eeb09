"""How fast each loop of a flight controller may be, worked out from the craft: no gain here belongs to one of
them.

Loops nest: rotors, body rates and attitude, velocity and position; each needs the one inside it to be several
times faster. So the lag of the rotors and the time step set the attitude's frequency, unless the rotors'
torque sets it, and the attitude's frequency sets that of the position. Every controller makes its own gains
of these frequencies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import GRAVITY_M_S2, Craft

FASTEST_ATTITUDE_RAD_S = 25.0  # what bounds a craft whose model has no lag at all
FASTEST_ROTOR_S = (
    0.015  # rotors are never asked to settle in less, however small the step: commands would saturate
)
FULL_TORQUE_RAD = 0.5  # error of attitude or yaw that may ask for all the torque there is at hover
USABLE_THRUST = 0.95  # share of full thrust that manoeuvres may plan with; the rest is left to the attitude


@dataclass(frozen=True, slots=True)
class ControllerGains:
    """Natural frequencies [rad/s], damping ratios and limits, of which each controller makes its gains."""

    rotor_s: float  # time constant that the rotors are to have, see mixer.make_motors
    attitude_rad_s: float  # roll and pitch
    yaw_rad_s: float
    position_rad_s: float
    max_tilt_rad: float  # of the thrust that is asked for
    max_climb_m_s2: float
    max_sink_m_s2: float
    max_accel_m_s2: float  # thrust over mass that may be asked for, gravity included
    brake_m_s2: float  # that a craft on its way to a far point plans with
    max_speed_m_s: float = 5.0  # on that way
    damping: float = 1.0  # of the position
    attitude_damping: float = (
        0.8  # less: the position waits for the attitude, whose lag counts more than its swing
    )
    integral: float = (
        1.0 / 3.0
    )  # frequency of the integrals' own pole, as a share of the position's, below 1 / 2
    integral_error_m_s2: float = (
        0.3  # times the position's frequency^-2: integrals count larger errors as this one
    )
    max_integral_m_s2: float = 0.5 * GRAVITY_M_S2  # of the acceleration that integrals may hold


def gains_for(craft: Craft, dt_s: float) -> ControllerGains:
    """The gains of this craft, controlled every `dt_s`. Raises ConfigError for a step that is not above 0.

    The attitude's lag T is the rotors' plus one step. 0.33 / T for the attitude and a fifth of it for the
    position leave every mode of every controller, on every craft, damped to 0.44 or better (eigenvalues of
    the sampled loop).
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
    """Roll, pitch and yaw acceleration that the rotors can give while their thrust still carries the
    craft.
    """
    hover_n = craft.mass_kg * GRAVITY_M_S2 / 4.0
    spare_n = min(hover_n - craft.thrust_n[0], sum(craft.thrust_n) - hover_n)
    jx, jy, jz = craft.inertia_kg_m2
    roll = spare_n * sum(abs(y) for _, y in craft.rotors_m) / jx
    pitch = spare_n * sum(abs(x) for x, _ in craft.rotors_m) / jy
    return roll, pitch, 4.0 * spare_n * craft.torque_per_thrust_m / jz


def integral_gain(share: float, damping: float) -> float:
    """a for which s^3 + 2 d s^2 + s + a has a pole at -share: the integral gain in units of the natural
    frequency^3.
    """
    return share * (share * share - 2.0 * damping * share + 1.0)
