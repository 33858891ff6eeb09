"""The task: what the policy is asked to do, told once and kept for whoever comes later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardware.bus.protocol import Bus
from hardware.messages import Floats, Text
from hardware.topics import GOAL, TASK


class TaskNode:
    """Publishes `goal` and `task`, both latched; an empty one is left out."""

    def __init__(self, bus: Bus, goal: Sequence[float], words: str = "") -> None:
        if goal:
            GOAL.publisher(bus)(Floats(np.asarray(goal, dtype=np.float64)))
        if words:
            TASK.publisher(bus)(Text(words))

    def stop(self, why: str) -> str:
        """Nothing moves because of this node."""
        return f"{why}: done"

    @property
    def at_rest(self) -> bool:
        return True

    def last_word(self) -> None:
        """Nothing needs saying."""
