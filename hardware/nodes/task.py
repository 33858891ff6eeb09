"""Publishes the policy's task once, latched for nodes that start later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardware.bus.protocol import Bus
from hardware.messages import Floats, Text
from hardware.topics import GOAL, TASK


class TaskNode:
    """Publishes `goal` and `task`, both latched; an empty one is omitted."""

    def __init__(self, bus: Bus, goal: Sequence[float], words: str = "") -> None:
        if goal:
            GOAL.publisher(bus)(Floats(np.asarray(goal, dtype=np.float64)))
        if words:
            TASK.publisher(bus)(Text(words))

    def stop(self, why: str) -> str:
        """Return the closing sentence; nothing moves because of this node."""
        return f"{why}: done"

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """Do nothing."""
