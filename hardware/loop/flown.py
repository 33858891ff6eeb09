"""How a flight went, as far as its policy could see: how long, how far from its goal, and where it ended."""

from __future__ import annotations

import math
from dataclasses import dataclass

THERE_M = 0.1  # so near, a craft has reached its goal
_GAP_S = 0.5  # between states farther apart than this, nobody knows whether it flew


@dataclass(slots=True)
class FlightRecord:
    """Told of every state that comes while the filter lets the policy fly. Times are local monotonic
    seconds.
    """

    flown_s: float = 0.0
    nearest_m: float = math.inf  # to the newest goal
    worst_m: float | None = None  # from a goal that had been reached; None: none was
    last_m: float = 0.0
    _there: bool = False
    _seen_s: float | None = None

    def see(self, now_s: float, away_m: float) -> None:
        """away_m: distance from the goal."""
        if self._seen_s is not None and now_s - self._seen_s < _GAP_S:
            self.flown_s += now_s - self._seen_s
        self._seen_s, self.last_m, self.nearest_m = now_s, away_m, min(self.nearest_m, away_m)
        self._there = self._there or away_m <= THERE_M
        if self._there:
            self.worst_m = max(self.worst_m or 0.0, away_m)

    def new_goal(self) -> None:
        """The way to it is no error."""
        self._there, self.nearest_m = False, math.inf

    def __str__(self) -> str:
        if self._seen_s is None:
            return "the craft never flew"
        flown = f"flew {self.flown_s:.1f} s"
        if not self._there:
            missed = f"and did not come within {THERE_M:g} m of its goal (nearest {self.nearest_m:.2f} m)"
            return f"{flown} {missed}"
        return f"{flown}, {self.last_m:.3f} m from its goal at the end, at worst {self.worst_m:.3f} m once it was there"
