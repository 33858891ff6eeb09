"""Checks and limits of a quadcopter's filter: pure functions of a state, a command and the envelope."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy import ndarray

from hardware.messages import Odometry
from hardware.safety.reasons import Reason
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.shapes import Float

Four = Float[ndarray, " 4"]
Level = Literal["motors", "rates"]  # four rotor speeds in [-1, 1]; or thrust 0 ... 1 and body rates [rad/s]
_UNIT = 0.05  # largest error of the length of a quaternion


def tilt(state: Odometry) -> float:
    """Angle between the craft's up and the world's [rad]."""
    _, x, y, _ = state.quat_wxyz
    return math.acos(min(1.0, max(-1.0, 1.0 - 2.0 * float(x * x + y * y))))


def is_state(message: Odometry) -> bool:
    """True for a finite state of the right shapes whose quaternion has unit length."""
    for value, size in (
        (message.position_m, 3), (message.quat_wxyz, 4),
        (message.velocity_body_m_s, 3), (message.rates_rad_s, 3),
    ):  # fmt: skip
        array = np.asarray(value)
        if array.shape != (size,) or not np.isfinite(array).all():
            return False
    return abs(math.hypot(*message.quat_wxyz) - 1.0) <= _UNIT


def exceeded(state: Odometry, envelope: FlightEnvelope) -> Reason | None:
    """Which bound of the envelope the craft is beyond; None inside."""
    if tilt(state) > envelope.tilt_rad:
        return Reason.TILT
    if math.hypot(*state.rates_rad_s) > envelope.rate_rad_s:
        return Reason.FAST_ROTATION
    if math.hypot(*state.velocity_body_m_s) > envelope.speed_m_s:
        return Reason.SPEED
    low, high = np.array(envelope.fence_low_m), np.array(envelope.fence_high_m)
    inside = (state.position_m >= low).all() and (state.position_m <= high).all()
    return None if inside else Reason.FENCE


def clamped(values: Four, level: Level, envelope: FlightEnvelope) -> tuple[Four, tuple[Reason, ...]]:
    """The command within the limits of its level, and which limits changed it; `values` is not changed."""
    if level == "motors":
        kept: Four = np.clip(values, -1.0, 1.0)
        return kept, (Reason.THRUST,) if (kept != values).any() else ()
    thrust, rates = float(np.clip(values[0], 0.0, 1.0)), values[1:]
    turning = math.hypot(*rates)  # overflows later than the norm of NumPy
    limited_by = [Reason.THRUST] if thrust != values[0] else []
    if turning > envelope.rate_rad_s:
        limited_by.append(Reason.BODY_RATE)
        rates = rates * (envelope.rate_rad_s / turning) if math.isfinite(turning) else np.zeros(3)
    return np.array([thrust, *rates]), tuple(limited_by)
