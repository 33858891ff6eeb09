"""One human at a time: who drives the arm keeps it until they have been silent for a while."""

from __future__ import annotations

import math

SILENT_S = 0.25  # after which another operator may drive


class OperatorLease:
    """The way by which a human drives: waypoints on one topic, or velocities on others."""

    def __init__(self) -> None:
        self._way, self._driven_s = "", -math.inf

    def grants(self, way: str, now_s: float) -> bool:
        """True if this way may drive now: it does already, or nobody has for a while. It is driven then."""
        if way != self._way and 0.0 <= now_s - self._driven_s <= SILENT_S:
            return False
        self._way, self._driven_s = way, now_s
        return True

    def release(self) -> None:
        """Let anybody drive next, as after the end of an intervention."""
        self._driven_s = -math.inf
