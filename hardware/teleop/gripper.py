"""The gripper's part of a command: opened and closed by a button, or as far as a trigger says."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from robo_rl.core.shapes import Float


class GripperDrive:
    """Wanted position of the gripper, which moves at the speed of its joint; nothing without a gripper.

    It begins from the position sent last, not from the measured one: a gripper that holds an object is
    commanded further than it gets, and would let go of it.
    """

    def __init__(self, robot: RobotDescription) -> None:
        self._gripper = robot.gripper
        self._goal: float | None = None
        self._place = int(robot.is_gripper.argmax())
        self._speed = float(robot.column("velocity_rad_s")[self._place])
        self._at: float | None = None

    def release(self) -> None:
        """Let go: the next command begins from where the gripper was sent."""
        self._goal = self._at = None

    def next(
        self, opening: float | None, toggle: bool, start_rad: Float[ndarray, " j"], dt_s: float
    ) -> float | None:
        """Position of the gripper's joint after dt_s; None for an arm without one.

        opening: wanted, 0 closed to 1 open; None: as before. start_rad: what was sent last.
        """
        gripper = self._gripper
        if gripper is None:
            return None
        at = float(start_rad[self._place]) if self._at is None else self._at
        span = gripper.open_at - gripper.closed_at
        if opening is not None:
            self._goal = gripper.closed_at + opening * span
        elif toggle:
            towards = at if self._goal is None else self._goal
            is_open = (towards - gripper.closed_at) / span > 0.5
            self._goal = gripper.closed_at if is_open else gripper.open_at
        goal = at if self._goal is None else self._goal
        self._at = at + float(np.clip(goal - at, -self._speed * dt_s, self._speed * dt_s))
        return self._at
