"""The last bound before a quadcopter: finite, of unit length, and within rates, tilt and thrust that it can
fly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.states import Attitude, BodyRates, FullState, Hover, MotorCommand, Position, Setpoint
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.flight.frames import quat_product, rotation_of

_SIZES = {"rates_rad_s": 3, "quat_wxyz": 4, "position_m": 3, "acceleration_m_s2": 3}


@dataclass(frozen=True, slots=True)
class QuadLimits:
    """rate: of each body axis. tilt: between the craft's up and the world's. speed: the norm of velocity
    setpoints.
    """

    rate_rad_s: float
    tilt_rad: float
    speed_m_s: float
    thrust_low: float = 0.0
    thrust_high: float = 1.0

    def __post_init__(self) -> None:
        good = self.rate_rad_s > 0.0 and 0.0 < self.tilt_rad < math.pi / 2 and self.speed_m_s > 0.0
        if not good or not 0.0 <= self.thrust_low < self.thrust_high <= 1.0:
            raise ConfigError(
                f"{self} cannot be flown: rate and speed are above 0, tilt lies in (0, 1.57) rad, thrust in "
                "0 ... 1."
            )


def refuse_motors(setpoint: Setpoint, robot: str) -> None:
    """Raise DriverError for motor commands: a radio is too slow and too lossy to close that loop."""
    if isinstance(setpoint, MotorCommand):
        raise DriverError(
            f"{robot} takes no motor commands over its link: a policy that turns the motors runs on board, "
            "at 100 Hz and more. Export it as C (robo-rl fly writes it; docs/flight.md), or train one whose "
            "actions are body rates and thrust, an attitude or a position."
        )


def bounded(setpoint: Setpoint, limits: QuadLimits, robot: str) -> Setpoint:
    """What may be sent. Raises DriverError for what is no setpoint; nothing was sent then."""
    refuse_motors(setpoint, robot)
    _check(setpoint, robot)
    if isinstance(setpoint, BodyRates):
        rates = np.clip(setpoint.rates_rad_s, -limits.rate_rad_s, limits.rate_rad_s)
        return BodyRates(rates, _thrust(setpoint.thrust, limits))
    if isinstance(setpoint, Attitude):
        yaw_rate = float(np.clip(setpoint.yaw_rate_rad_s, -limits.rate_rad_s, limits.rate_rad_s))
        return Attitude(
            less_tilted(setpoint.quat_wxyz, limits.tilt_rad), _thrust(setpoint.thrust, limits), yaw_rate
        )
    if isinstance(setpoint, Hover):
        yaw_rate = float(np.clip(setpoint.yaw_rate_rad_s, -limits.rate_rad_s, limits.rate_rad_s))
        return Hover(_slower(setpoint.velocity_m_s, limits.speed_m_s), yaw_rate, setpoint.height_m)
    if isinstance(setpoint, FullState):
        return replace(
            setpoint,
            velocity_m_s=_slower(setpoint.velocity_m_s, limits.speed_m_s),
            quat_wxyz=less_tilted(setpoint.quat_wxyz, limits.tilt_rad),
            rates_rad_s=np.clip(setpoint.rates_rad_s, -limits.rate_rad_s, limits.rate_rad_s),
        )
    return setpoint


def less_tilted(quat_wxyz: Float[ndarray, " 4"], tilt_rad: float) -> Float[ndarray, " 4"]:
    """The attitude with the same heading and direction of tilt, tilted by at most this much.

    q = tilt * yaw, where tilt turns up to the craft's up about a level axis and yaw turns about up: the tilt
    shrinks.
    """
    quat: ndarray = np.asarray(quat_wxyz, float) / np.linalg.norm(quat_wxyz)
    up = rotation_of(quat)[:, 2]
    angle = math.acos(float(np.clip(up[2], -1.0, 1.0)))
    if angle <= tilt_rad:
        return quat
    side = math.hypot(up[0], up[1])
    # Upside down, every level axis is as good: take the body's own x.
    axis = np.array([-up[1], up[0], 0.0]) / side if side > 1e-9 else np.array([1.0, 0.0, 0.0])
    yaw = quat_product(_turn(axis, -angle), quat)
    tilted: ndarray = quat_product(_turn(axis, tilt_rad), yaw)
    return tilted


def yaw_of(quat_wxyz: Float[ndarray, " 4"]) -> float:
    """Heading of the nose, to the left of the world's x."""
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
                f"{item.name} of a {type(setpoint).__name__} to {robot} must be finite and of its size, "
                f"found {value}. Nothing was sent."
            )
        if item.name == "quat_wxyz" and abs(float(np.linalg.norm(value)) - 1.0) > 1e-2:
            raise DriverError(
                f"quat_wxyz has length {np.linalg.norm(value):.3f}, expected 1. Nothing was sent."
            )
