"""Estimate of the time that a training takes, after its first seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from robo_rl.core.text.counts import counted

WATCHED_S = 5.0  # time over which the first steps are measured
LONG_S = 300.0  # no sentence on a training that takes less


class TimeEstimate:
    """Sentence on the duration of a training, once, if it is long.

    The first step is not measured: it starts workers and allocates memory.
    """

    def __init__(self, total: int, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._unit, self._clock = total, unit, clock
        self._begun: tuple[int, float] | None = None  # (step, time) after the first step
        self._over = False

    def sentence(self, step: int) -> str:
        """Empty after all steps but one."""
        if self._over:
            return ""
        if self._begun is None:
            self._begun = step, self._clock()
            return ""
        steps, elapsed_s = step - self._begun[0], self._clock() - self._begun[1]
        if steps < 1 or elapsed_s < WATCHED_S:
            return ""
        self._over = True
        each_s = elapsed_s / steps
        left_s = each_s * (self._total - step)
        if left_s < LONG_S:
            return ""
        words = f"{left_s / 60:.0f} min" if left_s < 5400.0 else f"{left_s / 3600:.1f} h"
        return f"This will take about {words}: {counted(self._total - step, self._unit)} of {each_s:.2g} s."
