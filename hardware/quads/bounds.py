"""Checks and limits of setpoints for a quadcopter, applied by the drivers to every setpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy import ndarray

from hardware.states import Attitude, BodyRates, FullState, Hover, MotorCommand, Position, Setpoint
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.flight.frames import quat_product, rotation_of
from robo_rl.core.shapes import Float

MOST_RATE_RAD_S = 35.0  # range of the gyroscopes of small autopilots, 2,000 deg/s
MOST_SPEED_M_S = 100.0
_SIZES = {"rates_rad_s": 3, "quat_wxyz": 4, "position_m": 3, "acceleration_m_s2": 3}


@dataclass(frozen=True, slots=True)
class QuadLimits:
    """Limits of setpoints. Raises ConfigError for limits outside their ranges.

    rate_rad_s: about each body axis, up to 35. thrust_low, thrust_high: fractions of the full thrust.
    tilt_rad: angle between the craft's z axis and the world's, below pi/2; speed_m_s: norm of velocity
    setpoints, up to 100. Both have no effect on body rates, which hold neither attitude nor velocity.
    """

    rate_rad_s: float
    tilt_rad: float = 0.6
    speed_m_s: float = 1.5
    thrust_low: float = 0.0
    thrust_high: float = 1.0

    def __post_init__(self) -> None:
        good = 0.0 < self.rate_rad_s <= MOST_RATE_RAD_S and 0.0 < self.tilt_rad < math.pi / 2
        good = good and 0.0 < self.speed_m_s <= MOST_SPEED_M_S
        if not good or not 0.0 <= self.thrust_low < self.thrust_high <= 1.0:
            raise ConfigError(
                f"{self}: expected a rate above 0 and up to {MOST_RATE_RAD_S:g} rad/s, a tilt in "
                f"(0, 1.57) rad, a speed above 0 and up to {MOST_SPEED_M_S:g} m/s, and thrust_low < "
                "thrust_high in [0, 1]. "
                "Divide degrees by 57.296."
            )


def refuse_motors(setpoint: Setpoint, robot: str) -> None:
    """Raise DriverError for motor commands: a radio link is too slow and loses too many packets for them."""
    if isinstance(setpoint, MotorCommand):
        raise DriverError(
            f"{robot} takes no motor commands over its link: a policy that commands motors has to run on "
            "board, at 100 Hz or more. Export it as C (robo-rl fly writes it; docs/flight.md), or train a "
            "policy whose actions are body rates and thrust, an attitude or a position."
        )


def bounded(setpoint: Setpoint, limits: QuadLimits, robot: str) -> Setpoint:
    """The setpoint within the limits; `motors_off` stays what it is.

    Raises DriverError for motor commands, and for values that are not finite or have the wrong size.
    """
    refuse_motors(setpoint, robot)
    _check(setpoint, robot)
    if motors_off(setpoint):
        return setpoint  # also where `thrust_low` is above 0
    if isinstance(setpoint, BodyRates):
        rates = np.clip(setpoint.rates_rad_s, -limits.rate_rad_s, limits.rate_rad_s)
        return BodyRates(rates, _thrust(setpoint.thrust, limits))
    if isinstance(setpoint, Attitude):
        yaw_rate = float(np.clip(setpoint.yaw_rate_rad_s, -limits.rate_rad_s, limits.rate_rad_s))
        return Attitude(
            limited_tilt(setpoint.quat_wxyz, limits.tilt_rad), _thrust(setpoint.thrust, limits), yaw_rate
        )
    if isinstance(setpoint, Hover):
        yaw_rate = float(np.clip(setpoint.yaw_rate_rad_s, -limits.rate_rad_s, limits.rate_rad_s))
        return Hover(_slower(setpoint.velocity_m_s, limits.speed_m_s), yaw_rate, setpoint.height_m)
    if isinstance(setpoint, FullState):
        return replace(
            setpoint,
            velocity_m_s=_slower(setpoint.velocity_m_s, limits.speed_m_s),
            quat_wxyz=limited_tilt(setpoint.quat_wxyz, limits.tilt_rad),
            rates_rad_s=np.clip(setpoint.rates_rad_s, -limits.rate_rad_s, limits.rate_rad_s),
        )
    return setpoint


def motors_off(setpoint: Setpoint) -> bool:
    """True for no thrust and no rates at all, by which the flight filter switches the motors off.

    A stop after such a setpoint must not land the craft, because the rotors would turn again.
    """
    return isinstance(setpoint, BodyRates) and setpoint.thrust == 0.0 and not np.any(setpoint.rates_rad_s)


def bounded_rates(setpoint: Setpoint, limits: QuadLimits, robot: str) -> BodyRates:
    """The body rates within the limits. Raises DriverError as `bounded`, and for other types of setpoints."""
    sent = bounded(setpoint, limits, robot)
    if not isinstance(sent, BodyRates):
        raise DriverError(f"{robot} expects BodyRates, found {type(sent).__name__}. Nothing was sent.")
    return sent


def limited_tilt(quat_wxyz: Float[ndarray, " 4"], tilt_rad: float) -> Float[ndarray, " 4"]:
    """The attitude with the same heading and direction of tilt, tilted by at most `tilt_rad`.

    q = tilt * yaw: yaw rotates about the world's z axis, tilt about a horizontal axis. The angle of tilt is
    limited.
    """
    quat: ndarray = np.asarray(quat_wxyz, float) / np.linalg.norm(quat_wxyz)
    up = rotation_of(quat)[:, 2]
    side = math.hypot(up[0], up[1])
    angle = math.atan2(side, up[2])  # acos would be wrong by 1e-8 rad near upside down
    if angle <= tilt_rad:
        return quat
    # Upside down, the horizontal axis is not defined, so the x axis is used.
    axis = np.array([-up[1], up[0], 0.0]) / side if side > 1e-12 else np.array([1.0, 0.0, 0.0])
    yaw = quat_product(_turn(axis, -angle), quat)
    tilted: ndarray = quat_product(_turn(axis, tilt_rad), yaw)
    return tilted


def yaw_of(quat_wxyz: Float[ndarray, " 4"]) -> float:
    """Heading of the nose [rad], from the world's x axis, positive to the left."""
    forward = rotation_of(quat_wxyz)[:, 0]
    return math.atan2(forward[1], forward[0])


def _turn(axis: Float[ndarray, " 3"], angle_rad: float) -> Float[ndarray, " 4"]:
    return np.concatenate([[math.cos(angle_rad / 2)], math.sin(angle_rad / 2) * axis])


def _thrust(thrust: float, limits: QuadLimits) -> float:
    return float(np.clip(thrust, limits.thrust_low, limits.thrust_high))


def _slower(velocity_m_s: Float[ndarray, " d"], limit_m_s: float) -> Float[ndarray, " d"]:
    speed = float(np.linalg.norm(velocity_m_s))
    slower: ndarray = velocity_m_s if speed <= limit_m_s else velocity_m_s * (limit_m_s / speed)
    return slower


def _check(setpoint: Setpoint, robot: str) -> None:
    if not isinstance(setpoint, (BodyRates, Attitude, Position, Hover, FullState)):
        raise DriverError(f"{robot} takes no {type(setpoint).__name__}. Nothing was sent.")
    for item in fields(setpoint):
        value = np.asarray(getattr(setpoint, item.name), float)
        size = 2 if isinstance(setpoint, Hover) else 3
        shape = (_SIZES.get(item.name, size),) if value.ndim else ()
        if value.shape != shape or not np.isfinite(value).all():
            raise DriverError(
                f"{item.name} of a {type(setpoint).__name__} to {robot} must be finite and have shape "
                f"{shape}, found {value}. Nothing was sent."
            )
        if item.name == "quat_wxyz" and abs(float(np.linalg.norm(value)) - 1.0) > 1e-2:
            raise DriverError(
                f"quat_wxyz has length {np.linalg.norm(value):.3f}, expected 1. Nothing was sent."
            )
