"""What robots tell and take, at their drivers: plain frozen records, SI units, world ENU, body FLU,
quaternions wxyz.

`received_s` is the local monotonic time at which the oldest part of a state arrived: its age is judged by
that alone. Records pass between processes (`hardware/guard/guard.py`), so their fields are numbers, text,
flags and arrays only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy import ndarray


@dataclass(frozen=True, slots=True)
class ArmState:
    """j joints in the order of the driver's `names`."""

    received_s: float
    position_rad: Float[ndarray, " j"]
    velocity_rad_s: Float[ndarray, " v"]  # v = j, or 0 where the robot does not tell it
    fault: str = ""  # why the arm does not move now, in a sentence; empty when it would
    speed_scaling: float = (
        1.0  # of the robot's own speed slider and safety: commands are followed this much slower
    )


@dataclass(frozen=True, slots=True)
class JointCommand:
    """Where the joints shall be when the next command is due."""

    position_rad: Float[ndarray, " j"]


@dataclass(frozen=True, slots=True)
class QuadState:
    """What a quadcopter's own estimator says."""

    received_s: float
    position_m: Float[ndarray, " 3"]
    quat_wxyz: Float[ndarray, " 4"]  # body to world
    velocity_m_s: Float[ndarray, " 3"]  # world
    rates_rad_s: Float[ndarray, " 3"]  # body
    battery_v: float = float("nan")  # nan until the craft has told it
    armed: bool = False
    flying: bool = False
    controlled: bool = False  # it flies by our setpoints, not by a pilot's or its own
    fault: str = ""  # tumbled, locked, failsafe, ...; empty when it obeys


@dataclass(frozen=True, slots=True)
class BodyRates:
    """Turn at these rates, with this part of the full thrust, 0 ... 1."""

    rates_rad_s: Float[ndarray, " 3"]
    thrust: float


@dataclass(frozen=True, slots=True)
class Attitude:
    """Hold this attitude, with this part of the full thrust, 0 ... 1. Yaw turns at `yaw_rate_rad_s`."""

    quat_wxyz: Float[ndarray, " 4"]
    thrust: float
    yaw_rate_rad_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Position:
    """Be there, with the nose at `yaw_rad` to the left of the world's x."""

    position_m: Float[ndarray, " 3"]
    yaw_rad: float = 0.0


@dataclass(frozen=True, slots=True)
class Hover:
    """Fly at this velocity in the level body frame (x forward, y left), at this height above ground."""

    velocity_m_s: Float[ndarray, " 2"]
    yaw_rate_rad_s: float
    height_m: float


@dataclass(frozen=True, slots=True)
class FullState:
    """A point of a trajectory, with everything that the craft's controller can use ahead of it."""

    position_m: Float[ndarray, " 3"]
    velocity_m_s: Float[ndarray, " 3"]
    acceleration_m_s2: Float[ndarray, " 3"]
    quat_wxyz: Float[ndarray, " 4"] = field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))
    rates_rad_s: Float[ndarray, " 3"] = field(default_factory=lambda: np.zeros(3))


@dataclass(frozen=True, slots=True)
class MotorCommand:
    """Four motor commands in -1 ... 1. No radio carries these: every driver refuses them, see
    `docs/drivers.md`.
    """

    action: Float[ndarray, " 4"]


Setpoint = BodyRates | Attitude | Position | Hover | FullState | MotorCommand
Record = (
    ArmState | JointCommand | QuadState | BodyRates | Attitude | Position | Hover | FullState | MotorCommand
)
