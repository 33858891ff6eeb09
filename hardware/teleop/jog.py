"""Integration of joint speeds to joint positions near the measured ones."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from robo_rl.core.shapes import Bool, Float

LEAD_S = 0.2  # lead of the wanted position, in seconds at full speed
Joints = Float[ndarray, " j"]


class Jog:
    """Position that follows joint speeds, within a lead of where the arm is measured.

    low_rad, high_rad: (j,) limits. lead_rad: (j,) largest lead, so that a blocked arm does not jump when
    freed.
    """

    def __init__(self, low_rad: Joints, high_rad: Joints, lead_rad: Joints) -> None:
        self._low_rad, self._high_rad, self._lead_rad = low_rad, high_rad, lead_rad
        self._at_rad: ndarray | None = None

    @classmethod
    def of(cls, robot: RobotDescription) -> Jog:
        """A lead of 0.2 s at full speed; a gripper may press with its whole range."""
        low_rad, high_rad = robot.column("low_rad"), robot.column("high_rad")
        lead_rad = np.where(robot.is_gripper, high_rad - low_rad, LEAD_S * robot.column("velocity_rad_s"))
        return cls(low_rad, high_rad, lead_rad)

    def release(self) -> None:
        """Begin the next motion from where the arm is measured."""
        self._at_rad = None

    def at(self, measured_rad: Joints, driven: Bool[ndarray, " j"] | None = None) -> Joints:
        """Position from which the next motion goes on; of joints that another sender drives, the measured."""
        if self._at_rad is None:
            return measured_rad
        if driven is not None:
            self._at_rad = np.where(driven, self._at_rad, measured_rad)
        return self._at_rad

    def next(self, speed_rad_s: Joints, measured_rad: Joints, dt_s: float) -> Joints:
        """Position after dt_s."""
        wish_rad = self.at(measured_rad) + speed_rad_s * dt_s
        near_rad = np.clip(wish_rad, measured_rad - self._lead_rad, measured_rad + self._lead_rad)
        self._at_rad = np.clip(near_rad, self._low_rad, self._high_rad)
        return self._at_rad
