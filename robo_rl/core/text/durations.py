"""Percentiles of durations in bounded memory: a histogram whose bins grow by 1 %.

The width of a bin is proportional to its value (as in DDSketch, Masson et al. 2019). A percentile is off by
at most half a bin, and memory does not grow with the number of durations.
"""

from __future__ import annotations

import math
from collections import Counter

GROWTH = 1.01  # ratio of a bin's upper border to its lower one
RELATIVE_ERROR = math.sqrt(GROWTH) - 1.0  # 0.5 %
SHORTEST_S, LONGEST_S = 1e-7, 1e6  # shorter and longer durations are counted as these; about 3,000 bins
_PER_BIN = 1.0 / math.log(GROWTH)


class Durations:
    """Histogram of durations [s]. `count`, the shortest and the longest are exact."""

    def __init__(self) -> None:
        self.count, self.shortest_s, self.longest_s = 0, math.inf, 0.0
        self._bins: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self.count += 1
        self.shortest_s, self.longest_s = min(self.shortest_s, seconds), max(self.longest_s, seconds)
        inside = min(max(seconds, SHORTEST_S), LONGEST_S)
        self._bins[math.floor(math.log(inside) * _PER_BIN)] += 1

    def percentile_s(self, q: float) -> float:
        """Percentile with NumPy's linear interpolation, within RELATIVE_ERROR; 0 without durations.

        Below SHORTEST_S the error is SHORTEST_S itself.
        """
        if not self.count:
            return 0.0
        rank = q / 100.0 * (self.count - 1)
        below, above = self._ranked(math.floor(rank)), self._ranked(math.ceil(rank))
        return below + (above - below) * (rank - math.floor(rank))

    def _ranked(self, rank: int) -> float:
        """Duration at a rank: the middle of its bin."""
        seen = 0
        for place in sorted(self._bins):
            seen += self._bins[place]
            if seen > rank:
                break
        middle_s = math.exp((place + 0.5) / _PER_BIN)
        return min(max(middle_s, self.shortest_s), self.longest_s)
