"""Bookkeeping of real-time chunking: the part of a chunk still to be played when the next one is requested.

Counted in control periods since the state of the request. The head that plays the chunks counts what it
played (`hardware/loop/player.py`); the two counts differ only while the head has nothing to play.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy import ndarray

from hardware.loop.inference import Running
from robo_rl.core.shapes import Float

_DELAYS = 10  # inferences whose delay is remembered: their longest is expected of the next one


class RunningPlan:
    """One chunk and how far it has been played. Time is an argument."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._delays_s: deque[float] = deque(maxlen=_DELAYS)
        self.reset()

    def reset(self) -> None:
        """Begin a new episode: nothing is being played, and a pending answer does not count."""
        self._chunk: Float[ndarray, "k a"] | None = None
        self._age = self._since_asked = 0  # periods since the chunk's own state; since the newest request
        self._asked_s = math.nan

    def tick(self) -> None:
        """Count one control period."""
        self._age += 1
        self._since_asked += 1

    def running(self) -> Running | None:
        """Rest of the chunk, and how much of it will have been played when an answer arrives; None without
        one.
        """
        if self._chunk is None or self._age >= len(self._chunk):
            return None
        left = self._chunk[self._age :]
        # One more, because state, request and head tick at different phases.
        periods = math.ceil(max(self._delays_s, default=0.0) / self._period_s - 1e-6) + 1
        return Running(left, min(periods, len(left)))

    def asked(self, now_s: float) -> None:
        """Note a request made for the state of this period."""
        self._asked_s, self._since_asked = now_s, 0

    def answered(self, chunk: Float[ndarray, "k a"], now_s: float) -> None:
        """Note the answer to the request; it is played from now on."""
        if math.isnan(self._asked_s):
            return
        self._delays_s.append(now_s - self._asked_s)
        self._chunk, self._age = np.asarray(chunk), self._since_asked
        self._asked_s = math.nan
