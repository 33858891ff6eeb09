"""Timers on absolute deadlines."""

from __future__ import annotations

import math
from collections.abc import Callable

from robo_rl.core.errors import BusError


class Timers:
    """Callbacks at fixed rates. A deadline that passed late is served once; those missed meanwhile are
    skipped.
    """

    def __init__(self) -> None:
        self._rows: list[list[float]] = []  # start, period, index of the next deadline
        self._callbacks: list[Callable[[], None]] = []

    def add(self, period_s: float, callback: Callable[[], None], now_s: float) -> None:
        """First due one period from now. Raises BusError for a period that is not positive."""
        if not (math.isfinite(period_s) and period_s > 0.0):
            raise BusError(f"A timer needs a period above 0 s, found {period_s}.")
        self._rows.append([now_s, period_s, 1])
        self._callbacks.append(callback)

    def next_s(self) -> float:
        """The earliest deadline; infinity without timers."""
        return min((start + k * period for start, period, k in self._rows), default=math.inf)

    def due(self, now_s: float) -> list[Callable[[], None]]:
        """The callbacks whose deadline has passed, the earliest first; each moves on to its next one after
        `now_s`.
        """
        found = []
        for row, callback in zip(self._rows, self._callbacks, strict=True):
            start, period, k = row
            if (deadline := start + k * period) <= now_s:
                row[2] = max(k + 1, math.floor((now_s - start) / period) + 1)
                found.append((deadline, callback))
        return [callback for _, callback in sorted(found, key=lambda pair: pair[0])]
