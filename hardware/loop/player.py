"""Turns chunks into one command per tick, whatever the delay of inference.

A chunk belongs to the state it was inferred from, measured in actions: `start` is the number of actions
played by then. When it arrives, more have been played, and its first waypoints are skipped. Action n of the
robot is therefore always the chunk's answer for action n: none is skipped and none is played twice. When the
queue runs empty, the count waits.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

_REMEMBERED = 2048  # states whose count is kept: 20 s at 100 Hz


class ChunkPlayer:
    """Queue of waypoints at the command rate."""

    def __init__(self) -> None:
        self.played = 0  # actions since the reset
        self.late = 0  # chunks that arrived too late to play any of
        self._chunk: Float[ndarray, "k j"] | None = None
        self._start = 0  # number of the action for the chunk's first waypoint

    def reset(self) -> None:
        """Begin a new episode: nothing is queued, and nothing has been played."""
        self.played, self._chunk = 0, None

    def drop(self) -> None:
        """Forget the queue, in the same episode."""
        self._chunk = None

    @property
    def left(self) -> int:
        """Number of actions still queued."""
        return 0 if self._chunk is None else max(0, self._start + len(self._chunk) - self.played)

    def offer(self, chunk: Float[ndarray, "k j"], start: int) -> bool:
        """Play this chunk from now on.

        False when it begins in the future, is older than the last one, or is too late.
        """
        if start > self.played or (self._chunk is not None and start < self._start):
            return False
        if start + len(chunk) <= self.played:
            self.late += 1
            return False
        self._chunk, self._start = chunk, start
        return True

    def next(self) -> Float[ndarray, " j"] | None:
        """Next action, which counts as played; None when nothing is queued."""
        if self.left == 0 or self._chunk is None:
            return None
        action: Float[ndarray, " j"] = self._chunk[self.played - self._start]
        self.played += 1
        return action

    def at(self, periods: float) -> Float[ndarray, " j"] | None:
        """Action at this many command periods from now, interpolated; the last one after the chunk's end.

        None when nothing is queued. 1 is the next action.
        """
        if self.left == 0 or self._chunk is None:
            return None
        row = min(self.played - self._start + periods - 1.0, len(self._chunk) - 1.0)
        low = int(row)
        found: Float[ndarray, " j"] = self._chunk[low]
        if row - low > 1e-6:
            found = found + (row - low) * (self._chunk[low + 1] - found)
        return found


class Counter:
    """Number of actions played when a state was received, found again by the state's stamp."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)

    def see(self, stamp_s: float, played: int) -> None:
        self._seen.append((stamp_s, played))

    def find(self, stamp_s: float) -> int | None:
        """Index of the newest state not after `stamp_s` (one may have been lost); None before the first."""
        return next((played for stamp, played in reversed(self._seen) if stamp <= stamp_s), None)

    def reset(self) -> None:
        self._seen.clear()


def resampled(
    position_rad: Float[ndarray, "k j"],
    times_s: Float[ndarray, " k"],
    period_s: float,
    now_s: float = 0.0,
    now_rad: Float[ndarray, " j"] | None = None,
) -> Float[ndarray, "n j"]:
    """Waypoints as one per command period, by linear interpolation; unchanged at equal rates.

    A waypoint is the position at its time, so the first command is for the end of the first period. now_rad:
    where the way begins at `now_s`, e.g. at the last command, as in a simulator's control step; None: at the
    first waypoint, from the start.
    """
    count = max(1, round(float(times_s[-1]) / period_s))
    wanted_s = period_s * np.arange(1, count + 1)
    if count == len(times_s) and np.allclose(wanted_s, times_s, atol=1e-6 * period_s):
        return position_rad
    ahead = times_s > now_s + 1e-6 * period_s
    if now_rad is not None and ahead.any():
        times_s = np.append(now_s, times_s[ahead])
        position_rad = np.concatenate([now_rad[None], position_rad[ahead]])
    return np.stack([np.interp(wanted_s, times_s, column) for column in position_rad.T], axis=1)
