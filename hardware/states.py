"""States and commands at the drivers' interface: frozen records in SI units.

World frame ENU, body frame FLU, quaternions [w, x, y, z], body to world. `received_s` is the local monotonic
time at which the oldest part of a state arrived; the age of a state is computed from it alone. Records are
sent between processes (`hardware/guard/guard.py`), so their fields are only numbers, strings, booleans and
arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float


@dataclass(frozen=True, slots=True)
class ArmState:
    """Measured state of an arm with j joints, in the order of the driver's `names`."""

    received_s: float
    position_rad: Float[ndarray, " j"]
    velocity_rad_s: Float[ndarray, " v"]  # v = j, or 0 where the robot does not report velocities
    fault: str = ""  # a sentence that says why the arm cannot move now; empty without a fault
    speed_scaling: float = 1.0  # the robot's own speed slider and safety slow commands down by this factor


@dataclass(frozen=True, slots=True)
class JointCommand:
    """Joint positions to reach by the time the next command is due, in the order of the driver's `names`."""

    position_rad: Float[ndarray, " j"]


@dataclass(frozen=True, slots=True)
class QuadState:
    """State of a quadcopter, from its own estimator."""

    received_s: float
    position_m: Float[ndarray, " 3"]
    quat_wxyz: Float[ndarray, " 4"]  # body to world
    velocity_m_s: Float[ndarray, " 3"]  # world
    rates_rad_s: Float[ndarray, " 3"]  # body
    battery_v: float = float("nan")  # NaN until the craft has reported it
    armed: bool = False
    flying: bool = False
    controlled: bool = False  # the craft follows our setpoints, not a pilot's or its own
    fault: str = ""  # tumbled, locked, failsafe, ...; empty without a fault


@dataclass(frozen=True, slots=True)
class BodyRates:
    """Setpoint of body rates and collective thrust."""

    rates_rad_s: Float[ndarray, " 3"]  # about the body's axes (FLU)
    thrust: float  # fraction of the full thrust, 0 to 1


@dataclass(frozen=True, slots=True)
class Attitude:
    """Setpoint of attitude, collective thrust and yaw rate."""

    quat_wxyz: Float[ndarray, " 4"]  # body to world
    thrust: float  # fraction of the full thrust, 0 to 1
    yaw_rate_rad_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Position:
    """Setpoint of position and heading."""

    position_m: Float[ndarray, " 3"]  # world
    yaw_rad: float = 0.0  # from the world's x axis, positive to the left


@dataclass(frozen=True, slots=True)
class Hover:
    """Setpoint of horizontal velocity, yaw rate and height."""

    velocity_m_s: Float[ndarray, " 2"]  # in the heading frame: x forward, y left, both horizontal
    yaw_rate_rad_s: float
    height_m: float  # above ground


@dataclass(frozen=True, slots=True)
class FullState:
    """Point of a trajectory, with all derivatives that the craft's controller can use as feedforward."""

    position_m: Float[ndarray, " 3"]  # world, as velocity and acceleration
    velocity_m_s: Float[ndarray, " 3"]
    acceleration_m_s2: Float[ndarray, " 3"]
    quat_wxyz: Float[ndarray, " 4"] = field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))
    rates_rad_s: Float[ndarray, " 3"] = field(default_factory=lambda: np.zeros(3))  # body


@dataclass(frozen=True, slots=True)
class MotorCommand:
    """Four motor commands in [-1, 1]. Every driver refuses them: see `docs/drivers.md` for the reason."""

    action: Float[ndarray, " 4"]


Setpoint = BodyRates | Attitude | Position | Hover | FullState | MotorCommand
Record = (
    ArmState | JointCommand | QuadState | BodyRates | Attitude | Position | Hover | FullState | MotorCommand
)
