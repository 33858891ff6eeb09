"""Statistics of a flight as the policy saw it: duration, distance from the goal, and where it ended."""

from __future__ import annotations

import math
from dataclasses import dataclass

THERE_M = 0.1  # distance at which a craft has reached its goal
_GAP_S = 0.5  # a longer gap between states does not count as flight


@dataclass(slots=True)
class FlightRecord:
    """Collects every state received while the filter passes commands. Times are local monotonic seconds."""

    flown_s: float = 0.0
    nearest_m: float = math.inf  # to the newest goal
    worst_m: float | None = None  # from a goal that had been reached; None: none was
    last_m: float = 0.0
    _there: bool = False
    _seen_s: float | None = None

    def see(self, now_s: float, away_m: float) -> None:
        """Add a state. away_m: distance from the goal."""
        if self._seen_s is not None and now_s - self._seen_s < _GAP_S:
            self.flown_s += now_s - self._seen_s
        self._seen_s, self.last_m, self.nearest_m = now_s, away_m, min(self.nearest_m, away_m)
        self._there = self._there or away_m <= THERE_M
        if self._there:
            self.worst_m = max(self.worst_m or 0.0, away_m)

    def new_goal(self) -> None:
        """Begin with a new goal; the flight to it does not count as an error."""
        self._there, self.nearest_m = False, math.inf

    def __str__(self) -> str:
        if self._seen_s is None:
            return "the craft never flew"
        flown = f"flew {self.flown_s:.1f} s"
        if not self._there:
            missed = f"and did not come within {THERE_M:g} m of its goal (nearest {self.nearest_m:.2f} m)"
            return f"{flown} {missed}"
        worst = f"at worst {self.worst_m:.3f} m once it was there"
        return f"{flown}, {self.last_m:.3f} m from its goal at the end, {worst}"
