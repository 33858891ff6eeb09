"""Timing of a loop: lateness, jitter, work, missed and skipped deadlines."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection

import numpy as np

from robo_rl.core.text.durations import Durations

_WINDOW = 4096  # newest ticks, whose times diagnostics report


class LoopTiming:
    """Times of ticks with absolute deadlines, start + k period.

    `late` and `work` hold all ticks for the final report; diagnostics report the newest ones only, because a
    loop that runs for days must show its present state.
    """

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.ticks = self.missed = self.skipped = 0
        self.late, self.work = Durations(), Durations()
        self._late_s: deque[float] = deque(maxlen=_WINDOW)
        self._work_s: deque[float] = deque(maxlen=_WINDOW)
        self._start_s = self._begin_s = math.nan
        self._next = 0

    def begin(self, now_s: float) -> float:
        """Note the start of a tick; returns its lateness [s]. Deadlines without a tick count as skipped."""
        if math.isnan(self._start_s) or now_s < self._start_s:
            self._start_s, self._next = now_s, 0
        newest = max(self._next, math.floor((now_s - self._start_s) / self.period_s + 1e-6))
        self.skipped += newest - self._next
        early_s = self._start_s + newest * self.period_s - now_s
        if early_s > 0.0:  # the first tick may be late itself: its deadline lies before it
            self._start_s -= early_s
        late_s = max(0.0, -early_s)
        self._begin_s, self._next = now_s, newest + 1
        self.ticks += 1
        self.late.add(late_s)
        self._late_s.append(late_s)
        return late_s

    def end(self, now_s: float) -> None:
        """Note the end of a tick; it is missed if the next one was due before."""
        work_s = now_s - self._begin_s
        self.work.add(work_s)
        self._work_s.append(work_s)
        if now_s - self._start_s > self._next * self.period_s:
            self.missed += 1

    def figures(self) -> dict[str, float]:
        """Counts, and milliseconds of all ticks: `work` is a tick's duration, `late` its delay."""
        return self._named(all_ms(self.late), all_ms(self.work))

    def values(self) -> dict[str, str]:
        """The same for diagnostics, with the milliseconds of the newest ticks."""
        newest = self._named(percentiles_ms(self._late_s), percentiles_ms(self._work_s))
        return {key: f"{value:.3f}" if "_ms_" in key else str(value) for key, value in newest.items()}

    def _named(self, late: tuple[float, float], work: tuple[float, float]) -> dict[str, float]:
        counts = {"ticks": self.ticks, "missed": self.missed, "skipped": self.skipped}
        times = {
            "late_ms_p50": late[0],
            "late_ms_p99": late[1],
            "work_ms_p50": work[0],
            "work_ms_p99": work[1],
        }
        return counts | times

    def __str__(self) -> str:
        late, work = all_ms(self.late), all_ms(self.work)
        return (
            f"{self.ticks} ticks at {1.0 / self.period_s:g} Hz: {self.missed} missed deadlines, "
            f"{self.skipped} skipped, "
            f"work {work[0]:.2f} ms (p99 {work[1]:.2f}), late {late[0]:.2f} ms (p99 {late[1]:.2f})"
        )


class RateMeter:
    """Rate of messages, measured anew at each look that comes a window or more after the last one."""

    def __init__(self, window_s: float = 1.0) -> None:
        self.hz: float | None = None  # newest rate; None before the first window is over
        self._window_s, self._start_s, self._messages = window_s, math.nan, 0

    def see(self, received_s: float) -> None:
        """Count a message."""
        if math.isnan(self._start_s):
            self._start_s = received_s  # its message begins the first interval
        else:
            self._messages += 1

    def look(self, now_s: float) -> float | None:
        """The newest rate [Hz]."""
        since_s = now_s - self._start_s
        if since_s < 0.0:  # the clock ran backwards
            self._start_s, self._messages = now_s, 0
        elif since_s >= self._window_s:
            self.hz = self._messages / since_s
            self._start_s, self._messages = now_s, 0
        return self.hz


def all_ms(durations: Durations) -> tuple[float, float]:
    """(median, 99th percentile) in ms, to half a per cent; zeros without values."""
    return 1e3 * durations.percentile_s(50), 1e3 * durations.percentile_s(99)


def percentiles_ms(seconds: Collection[float]) -> tuple[float, float]:
    """(median, 99th percentile) in ms; zeros without values."""
    if not seconds:
        return 0.0, 0.0
    half, most = np.percentile(np.array(seconds), [50, 99]) * 1e3
    return float(half), float(most)
