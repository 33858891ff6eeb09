"""Velocity commands from chunks, whatever the delay of inference. Time is an argument."""

from __future__ import annotations

import math

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

BRAKE_S = 1.0  # time at zero velocity after the last action of a chunk


class VelocityPlan:
    """Command of each moment, from the newest chunk.

    As in training, action k of a chunk holds from k to k + 1 control periods after the state that it was
    inferred from, so the first actions of a chunk that comes late are left out. After the last action the
    command is zero for `BRAKE_S`. Then there is none, so that the flight filter lands.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self.reset()

    def reset(self) -> None:
        """Forget the chunk."""
        self._chunk: Float[ndarray, "k 4"] = np.zeros((0, 4))
        self._start_s = -math.inf

    def hover(self, now_s: float) -> None:
        """Command zero velocity for `BRAKE_S` from now on, in place of the chunk."""
        self._chunk, self._start_s = np.zeros((0, 4)), now_s

    def take(self, chunk: Float[ndarray, "k 4"], state_s: float) -> None:
        """Follow this chunk from now on. state_s: time of the state that it was inferred from."""
        self._chunk, self._start_s = np.array(chunk, dtype=np.float64), state_s

    def at(self, now_s: float) -> Float[ndarray, " 4"] | None:
        """Command at this time; None when there is none."""
        periods = (now_s - self._start_s) / self._period_s
        if not math.isfinite(periods):
            return None
        number = max(0, math.floor(periods + 1e-6))
        if number < len(self._chunk):
            command: Float[ndarray, " 4"] = self._chunk[number]
            return command
        ended_s = now_s - self._start_s - len(self._chunk) * self._period_s
        return np.zeros(4) if ended_s <= BRAKE_S else None
