"""What of the chunk before is still to be played when the next one is asked for: the bookkeeping of real-time
chunking.

Counted in control periods since the state that a chunk was asked for. The head that plays the chunks counts
what it really played (`hardware/loop/player.py`); the two part only while the head has nothing to play.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.loop.inference import Running

_DELAYS = 10  # inferences whose delay is remembered: the longest of them is what the next one may take


class RunningPlan:
    """One chunk, and how far it has been played. Time is handed in."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._delays_s: deque[float] = deque(maxlen=_DELAYS)
        self.reset()

    def reset(self) -> None:
        """A new episode: nothing is being played, and an answer that is still due does not count."""
        self._chunk: Float[ndarray, "k a"] | None = None
        self._age = self._since_asked = 0  # periods since the chunk's own state; since the newest request
        self._asked_s = math.nan

    def tick(self) -> None:
        """A control period has passed."""
        self._age += 1
        self._since_asked += 1

    def running(self) -> Running | None:
        """What is left now, and how much of it will be gone when an answer comes; None when nothing is."""
        if self._chunk is None or self._age >= len(self._chunk):
            return None
        left = self._chunk[self._age :]
        # One more: state, request and head each tick in a phase of their own.
        periods = math.ceil(max(self._delays_s, default=0.0) / self._period_s - 1e-6) + 1
        return Running(left, min(periods, len(left)))

    def asked(self, now_s: float) -> None:
        """A request was made for the state of this period."""
        self._asked_s, self._since_asked = now_s, 0

    def answered(self, chunk: Float[ndarray, "k a"], now_s: float) -> None:
        """The answer to it, which is played from now on."""
        if math.isnan(self._asked_s):
            return
        self._delays_s.append(now_s - self._asked_s)
        self._chunk, self._age = np.asarray(chunk), self._since_asked
        self._asked_s = math.nan
