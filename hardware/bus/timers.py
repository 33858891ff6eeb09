"""Timers on absolute deadlines."""

from __future__ import annotations

import math
from collections.abc import Callable

from robo_rl.core.errors import BusError


class Timers:
    """Callbacks at fixed rates. A late deadline is served once; further missed deadlines are skipped."""

    def __init__(self) -> None:
        self._schedules: list[list[float]] = []  # start [s], period [s], index of the next deadline
        self._callbacks: list[Callable[[], None]] = []

    def add(self, period_s: float, callback: Callable[[], None], now_s: float) -> None:
        """Add a callback, first due one period from now.

        Raises BusError for a period that is not positive.
        """
        if not (math.isfinite(period_s) and period_s > 0.0):
            raise BusError(f"A timer needs a period above 0 s, found {period_s}.")
        self._schedules.append([now_s, period_s, 1])
        self._callbacks.append(callback)

    def next_s(self) -> float:
        """The earliest deadline [s]; infinity without timers."""
        return min((start + k * period for start, period, k in self._schedules), default=math.inf)

    def due(self, now_s: float) -> list[Callable[[], None]]:
        """The callbacks whose deadline has passed, earliest first.

        Their next deadlines are set to the first ones after `now_s`.
        """
        found = []
        for schedule, callback in zip(self._schedules, self._callbacks, strict=True):
            start, period, k = schedule
            if (deadline := start + k * period) <= now_s:
                schedule[2] = max(k + 1, math.floor((now_s - start) / period) + 1)
                found.append((deadline, callback))
        return [callback for _, callback in sorted(found, key=lambda pair: pair[0])]
