"""Choice of the estimator's states on which a policy decides, at the control rate of its training."""

from __future__ import annotations

import math

_EARLY = 0.25  # how long before it is due a decision may be made, in periods: states come with jitter
_LEAST = 0.5  # shortest time between two decisions, in periods
_BEHIND = 1.5  # delay from which on due times are left out, in periods
_FASTER = 1.05  # rate of states up to which each of them is decided on, in control rates
_NEW = 0.02  # weight of the newest interval in the mean interval of the states
_LONGEST = 2.0  # a longer interval counts as this long, in periods: one gap must not change the mean much


class DecisionClock:
    """Due times of decisions, one period apart. The first state from a quarter of a period before each of
    them on is decided on, so the first interval may be that much shorter.

    So states of a higher rate than the control rate give the control rate on average, and each state of a
    lower rate is decided on. States that are faster by up to 5 % are all decided on as well: one left out
    would leave a gap of two periods. Promise: two decisions are at least half a period apart, and after a gap
    due times are left out instead of made up for.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._due_s = self._decided_s = self._seen_s = math.nan
        self._interval_s = period_s  # mean of the states

    def decides(self, received_s: float) -> bool:
        """True for a state that is to be decided on. Call it once for every state."""
        self._see(received_s)
        since_s = received_s - self._decided_s
        if not since_s >= 0.0:  # the first state, or the clock ran backwards
            self._due_s = received_s
        elif since_s < _LEAST * self._period_s:
            return False
        elif received_s < self._due_s - _EARLY * self._period_s:
            if _FASTER * self._interval_s < self._period_s:
                return False
            self._due_s = received_s
        behind = (received_s - self._due_s) / self._period_s
        left_out = math.floor(behind) if behind > _BEHIND else 0
        self._due_s += (1 + left_out) * self._period_s
        self._decided_s = received_s
        return True

    def _see(self, received_s: float) -> None:
        """Take the interval between the newest two states into its mean."""
        interval_s, self._seen_s = received_s - self._seen_s, received_s
        if interval_s >= 0.0:  # not of the first state, nor after the clock ran backwards
            self._interval_s += _NEW * (min(interval_s, _LONGEST * self._period_s) - self._interval_s)
