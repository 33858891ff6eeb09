"""Guard of fine-tuning: restores the last good weights when training makes the policy worse than the base."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any


class Guard:
    """Compares the success of training episodes with the base's, or their return where none has ever been
    reported.

    The base's mean comes from episodes collected with the base. The last `window` training episodes are "bad"
    if their mean is more than `errors` standard errors of the difference below the base's, and "good" if it
    is at least the base's.
    """

    def __init__(self, window: int = 40, errors: float = 2.0) -> None:
        self.window, self.errors = window, errors
        self.base_episodes = 0
        self._sums = {"success": [0.0, 0.0], "return": [0.0, 0.0]}  # of the base's episodes, and of squares
        self._recent: deque[tuple[float, float]] = deque(maxlen=window)  # (success, return)
        self._any_reported = False  # whether any episode was reported as a success or a failure

    def add(
        self, success: bool, total_return: float = 0.0, *, of_base: bool = False, reported: bool = True
    ) -> None:
        """Add an episode of the base, or of training."""
        self._any_reported |= reported
        if not of_base:
            self._recent.append((float(success), total_return))
            return
        self.base_episodes += 1
        for sums, value in zip(self._sums.values(), (float(success), total_return), strict=True):
            sums[0] += value
            sums[1] += value * value

    @property
    def _base(self) -> tuple[float, float]:
        """Sum of what is compared over the base's episodes, and of its squares."""
        total, squares = self._sums["success" if self._any_reported else "return"]
        return total, squares

    @property
    def _last(self) -> list[float]:
        """What is compared of the last training episodes."""
        return [success if self._any_reported else total for success, total in self._recent]

    @property
    def base_mean(self) -> float:
        return self._base[0] / self.base_episodes if self.base_episodes else 0.0

    @property
    def recent_mean(self) -> float:
        return sum(self._last) / len(self._last) if self._recent else math.nan

    def verdict(self) -> str:
        """Verdict on the window: "good", "bad", or "unsure" while it is not full or the rate lies between."""
        if len(self._recent) < self.window or not self.base_episodes:
            return "unsure"
        p, q = self.base_mean, self.recent_mean
        # Variance of all episodes: where the base succeeds always or never, its own is 0, and a single
        # failure would decide. Of successes it is m (1 - m) with their mean m.
        (total, squares), last = self._base, self._last
        n = self.base_episodes + len(last)
        mean = (total + sum(last)) / n
        variance = (squares + sum(value * value for value in last)) / n - mean * mean
        error = math.sqrt(max(0.0, variance) * (1.0 / self.base_episodes + 1.0 / len(last)))
        if q < p - self.errors * error:
            return "bad"
        return "good" if q >= p else "unsure"

    def in_words(self) -> str:
        """Both means: "succeed 40 % of the time, the base 80 %"."""
        if not self._any_reported:
            return f"have a mean return of {self.recent_mean:.4g}, the base {self.base_mean:.4g}"
        return f"succeed {100 * self.recent_mean:.0f} % of the time, the base {100 * self.base_mean:.0f} %"

    def forget(self) -> None:
        """Empty the window after weights were restored: their own episodes are to be judged."""
        self._recent.clear()

    def state_dict(self) -> dict[str, Any]:
        return {
            "base_episodes": self.base_episodes,
            "sums": {name: list(sums) for name, sums in self._sums.items()},
            "recent": [list(each) for each in self._recent],
            "any_reported": self._any_reported,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; older checkpoints know success alone."""
        self.base_episodes = int(state["base_episodes"])
        known = "sums" in state
        won = float(state.get("base_sum", state.get("base_successes", 0.0)))
        sums = state["sums"] if known else {"success": [won, won], "return": [0.0, 0.0]}
        self._sums = {name: [float(value) for value in sums[name]] for name in self._sums}
        recent = state["recent"] if known else [(won, 0.0) for won in state["recent"]]
        self._recent = deque(((float(won), float(total)) for won, total in recent), maxlen=self.window)
        self._any_reported = bool(state.get("any_reported", state.get("told", True)))
