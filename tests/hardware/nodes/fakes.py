"""Simulated arm for the robot node: servos with a first-order lag."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.hardware.arm_descriptions import NAMES


class LagArm:
    """Follows its command with a time constant of 20 ms."""

    names: tuple[str, ...] = NAMES

    def __init__(self, start: Any = (0.0, 0.0, 0.0)) -> None:
        self.start = np.asarray(start, dtype=np.float64)
        self.commands: list[Any] = []
        self.reset()

    def reset(self) -> None:
        self.place, self.speed, self.goal = self.start.copy(), np.zeros(3), self.start.copy()

    def read(self) -> tuple[Any, Any]:
        return self.place.copy(), self.speed.copy()

    def command(self, position_rad: Any) -> None:
        self.goal = np.asarray(position_rad)
        self.commands.append(self.goal)

    def advance(self, dt_s: float) -> None:
        before = self.place
        self.place = before + (1.0 - np.exp(-dt_s / 0.02)) * (self.goal - before)
        self.speed = (self.place - before) / dt_s
