"""Setpoints as MAVLink messages. All conversions to PX4's frames, NED and FRD, are here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hardware.quads.bounds import yaw_of
from hardware.states import Attitude, BodyRates, FullState, Position, Setpoint
from robo_rl.core.errors import DriverError
from robo_rl.core.flight.frames import swap_attitude, swap_body, swap_world

if TYPE_CHECKING:
    from hardware.quads.px4.mavlink_link import Px4Link

# Bits of type_mask: fields that PX4 ignores.
NO_ATTITUDE = 128
NO_ROLL_PITCH_RATE = 1 | 2
NO_VELOCITY, NO_ACCELERATION, NO_YAW_RATE = 8 | 16 | 32, 64 | 128 | 256, 2048
LOCAL_NED = 1
LEVEL = (1.0, 0.0, 0.0, 0.0)


def yaw_ned(yaw_enu_rad: float) -> float:
    """Heading in NED (from north, positive to the right) of a heading in ENU (from east, to the left)."""
    return math.remainder(math.pi / 2 - yaw_enu_rad, 2.0 * math.pi)


def send_setpoint(link: Px4Link, setpoint: Setpoint, robot: str) -> None:
    """Send one message of the offboard stream. Raises DriverError for an unsupported type of setpoint."""
    if isinstance(setpoint, BodyRates):
        roll, pitch, yaw = swap_body(setpoint.rates_rad_s).tolist()
        link.send_attitude(NO_ATTITUDE, LEVEL, roll, pitch, yaw, setpoint.thrust)
    elif isinstance(setpoint, Attitude):
        quat = swap_attitude(setpoint.quat_wxyz)
        link.send_attitude(
            NO_ROLL_PITCH_RATE, quat.tolist(), 0.0, 0.0, -setpoint.yaw_rate_rad_s, setpoint.thrust
        )
    elif isinstance(setpoint, Position):
        mask = NO_VELOCITY | NO_ACCELERATION | NO_YAW_RATE
        zero = np.zeros(3)
        link.send_position(
            LOCAL_NED, mask, swap_world(setpoint.position_m), zero, zero, yaw_ned(setpoint.yaw_rad)
        )
    elif isinstance(setpoint, FullState):
        vectors = (setpoint.position_m, setpoint.velocity_m_s, setpoint.acceleration_m_s2)
        position, velocity, acceleration = map(swap_world, vectors)
        heading = yaw_ned(yaw_of(setpoint.quat_wxyz))
        link.send_position(LOCAL_NED, NO_YAW_RATE, position, velocity, acceleration, heading)
    else:
        raise DriverError(
            f"{robot} takes no {type(setpoint).__name__}: expected BodyRates, Attitude, Position or "
            "FullState. Nothing was sent."
        )
