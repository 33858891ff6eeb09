"""The arm's filter with an arm that follows at once, and a clock."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hardware.safety.arm_filter import ArmFilter
from tests.hardware.arm_descriptions import PERIOD_S, arm, command, state

ZERO = np.zeros(3)


class Bench:
    """A filter, an arm that follows at once, and a clock."""

    def __init__(self, start: Any = ZERO, armed: bool = True, **changes: Any) -> None:
        self.filter, self.now_s, self.place = ArmFilter(arm(**changes)), 10.0, np.asarray(start, dtype=float)
        self.sequence = 0
        self.sent: list[np.ndarray] = []
        self.hear()
        if armed:
            assert self.filter.arm(self.now_s)[0]

    def hear(self) -> None:
        self.filter.on_state(state(self.place), self.now_s)

    def tick(
        self, goal: Any = None, hear: bool = True, after_s: float = PERIOD_S, source: Any = "policy"
    ) -> Any:
        """One period: receive the state and a command, if there is one; return what is sent."""
        self.now_s += after_s
        if hear:
            self.hear()
        if goal is not None:
            self.filter.on_command(command(np.broadcast_to(goal, 3), self.sequence), source, self.now_s)
            self.sequence += 1
        out = self.filter.tick(self.now_s)
        if out is not None:
            self.place = out
            self.sent.append(out)
        return out

    def follow(self, to: float, ticks: int = 40) -> None:
        """Move all joints to `to`, slowly enough to pass unchanged."""
        start = self.place.copy()
        for i in range(1, ticks + 1):
            self.tick(start + (to - start) * (0.5 - 0.5 * math.cos(math.pi * i / ticks)))
