"""Setpoints for the Crazyflie's commander. All conversions to its sign conventions are here.

Its frames are ENU and FLU like ours, but its Euler pitch is positive nose up and its legacy yaw rate positive
to the right. cflib inverts the pitch again (firmware: crtp_commander_rpyt.c, controller_pid.c; cflib:
commander.py).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.quads.crazyflie.firmware import FULL_THRUST, thrust_number
from hardware.states import Attitude, BodyRates, FullState, Hover, Position, Setpoint
from robo_rl.core.errors import DriverError
from robo_rl.core.flight.frames import rotation_of, xyzw_of
from robo_rl.core.shapes import Float

FULL_STATE_LIMIT = 32.0  # m, m/s, m/s^2: a full state has millimetres in 16 bits


def roll_pitch(quat_wxyz: Float[ndarray, " 4"]) -> tuple[float, float]:
    """Euler angles z-y-x about FLU axes [rad]: roll positive to the right, pitch positive nose down."""
    r = rotation_of(quat_wxyz)
    return math.atan2(r[2, 1], r[2, 2]), -math.asin(float(np.clip(r[2, 0], -1.0, 1.0)))


def send_setpoint(commander: Any, setpoint: Setpoint, robot: str) -> Setpoint:
    """Send a setpoint by cflib's commander and return the values that the packet has.

    Raises DriverError for an unsupported type, and for a full state outside the range of the packet.
    """
    if isinstance(setpoint, BodyRates):
        number = thrust_number(setpoint.thrust)
        roll, pitch, yaw = np.degrees(setpoint.rates_rad_s).tolist()
        commander.send_setpoint(roll, pitch, -yaw, number)
        return BodyRates(setpoint.rates_rad_s, number / FULL_THRUST)
    if isinstance(setpoint, Attitude):
        number = thrust_number(setpoint.thrust)
        roll, pitch = map(math.degrees, roll_pitch(setpoint.quat_wxyz))
        commander.send_setpoint(roll, pitch, -math.degrees(setpoint.yaw_rate_rad_s), number)
        return replace(setpoint, thrust=number / FULL_THRUST)
    if isinstance(setpoint, Position):
        commander.send_position_setpoint(*setpoint.position_m.tolist(), math.degrees(setpoint.yaw_rad))
        return setpoint
    if isinstance(setpoint, Hover):
        yaw_rate = math.degrees(setpoint.yaw_rate_rad_s)
        commander.send_hover_setpoint(*setpoint.velocity_m_s.tolist(), yaw_rate, setpoint.height_m)
        return setpoint
    if isinstance(setpoint, FullState):
        # The firmware's controllers use different signs for the pitch rate here, so rates are not sent.
        still = replace(setpoint, rates_rad_s=np.zeros(3))
        vectors = (still.position_m, still.velocity_m_s, still.acceleration_m_s2)
        if max(float(np.abs(vector).max()) for vector in vectors) > FULL_STATE_LIMIT:
            raise DriverError(
                f"A full state for {robot} has values above {FULL_STATE_LIMIT:g} m, m/s or m/s^2, the range "
                "of its packet. Nothing was sent."
            )
        commander.send_full_state_setpoint(
            *(v.tolist() for v in vectors), xyzw_of(still.quat_wxyz), 0.0, 0.0, 0.0
        )
        return still
    raise DriverError(f"{robot} takes no {type(setpoint).__name__}. Nothing was sent.")
