"""Lateness of the app's ticks, and the time from an operator's input to the command that was sent."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

WINDOW = 250  # newest ticks: 5 s at 50 Hz
SETTLED_S = 0.5  # of ticks, before they have a rate
WEIGHT = 0.2  # of the newest latency in the mean


class LoopPulse:
    """Rate and lateness of the newest ticks."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self._ticks_s: deque[float] = deque(maxlen=WINDOW)

    def tick(self, now_s: float) -> None:
        """Note a tick."""
        self._ticks_s.append(now_s)

    @property
    def rate_hz(self) -> float:
        """Mean rate; 0 in the first half of a second, when ticks of a late start come at once."""
        span_s = self._ticks_s[-1] - self._ticks_s[0] if self._ticks_s else 0.0
        return (len(self._ticks_s) - 1) / span_s if span_s > SETTLED_S else 0.0

    @property
    def jitter_ms(self) -> float:
        """99th percentile of the distance between an interval and the period."""
        if len(self._ticks_s) < 2:
            return 0.0
        off_s = np.abs(np.diff(np.array(self._ticks_s)) - self.period_s)
        return float(1e3 * np.percentile(off_s, 99))


class CommandLatency:
    """Time from the receipt of an input to the first command that was sent after it was published."""

    def __init__(self) -> None:
        self.ms: float | None = None  # mean; None before the first
        self.echo_ms = 0.0  # the page's clock in its newest input
        self._asked_s = self._published_s = math.nan

    def asked(self, received_s: float, sent_ms: float) -> None:
        """Note an input; of several within one tick the first counts."""
        self.echo_ms = sent_ms
        if math.isnan(self._asked_s):
            self._asked_s = received_s

    def published(self, now_s: float) -> None:
        """Note that what was asked is on the bus."""
        if not math.isnan(self._asked_s) and math.isnan(self._published_s):
            self._published_s = now_s

    def heard(self, received_s: float) -> None:
        """Note a command that the filter has sent."""
        if received_s > self._published_s:
            ms = 1e3 * (received_s - self._asked_s)
            self.ms = round(ms if self.ms is None else self.ms + WEIGHT * (ms - self.ms), 2)
            self._asked_s = self._published_s = math.nan
