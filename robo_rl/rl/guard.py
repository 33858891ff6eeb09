"""Guard of fine-tuning: restores the last good weights when training makes the policy worse than the base."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any


class Guard:
    """Compares the mean score of training episodes with the base's: success, or the return where the
    environment reports none.

    The base's mean comes from episodes collected with the base. The last `window` training episodes are "bad"
    if their mean is more than `errors` standard errors of the difference below the base's, and "good" if it
    is at least the base's.
    """

    def __init__(self, window: int = 40, errors: float = 2.0) -> None:
        self.window, self.errors = window, errors
        self.base_sum, self.base_squares, self.base_episodes = 0.0, 0.0, 0
        self.recent: deque[float] = deque(maxlen=window)
        self._by_return = False

    def add(self, score: float, *, of_base: bool = False, by_return: bool = False) -> None:
        """Add an episode of the base, or of training. by_return: whether the score is a return."""
        self._by_return = by_return
        if of_base:
            self.base_sum += score
            self.base_squares += score * score
            self.base_episodes += 1
        else:
            self.recent.append(score)

    @property
    def base_mean(self) -> float:
        return self.base_sum / self.base_episodes if self.base_episodes else 0.0

    @property
    def recent_mean(self) -> float:
        return sum(self.recent) / len(self.recent) if self.recent else math.nan

    def verdict(self) -> str:
        """Verdict on the window: "good", "bad", or "unsure" while it is not full or the rate lies between."""
        if len(self.recent) < self.window or not self.base_episodes:
            return "unsure"
        p, q = self.base_mean, self.recent_mean
        # Variance of all episodes: where the base succeeds always or never, its own is 0, and a single
        # failure would decide. Of successes it is m (1 - m) with their mean m.
        n = self.base_episodes + len(self.recent)
        mean = (self.base_sum + sum(self.recent)) / n
        variance = (self.base_squares + sum(score * score for score in self.recent)) / n - mean * mean
        error = math.sqrt(max(0.0, variance) * (1.0 / self.base_episodes + 1.0 / len(self.recent)))
        if q < p - self.errors * error:
            return "bad"
        return "good" if q >= p else "unsure"

    def in_words(self) -> str:
        """Both means: "succeed 40 % of the time, the base 80 %"."""
        if self._by_return:
            return f"have a mean return of {self.recent_mean:.4g}, the base {self.base_mean:.4g}"
        return f"succeed {100 * self.recent_mean:.0f} % of the time, the base {100 * self.base_mean:.0f} %"

    def forget(self) -> None:
        """Empty the window after weights were restored: their own episodes are to be judged."""
        self.recent.clear()

    def state_dict(self) -> dict[str, Any]:
        return {
            "base_sum": self.base_sum,
            "base_squares": self.base_squares,
            "base_episodes": self.base_episodes,
            "recent": list(self.recent),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        older = float(state.get("base_successes", 0.0))  # of checkpoints that know success alone
        self.base_sum = float(state.get("base_sum", older))
        self.base_squares = float(state.get("base_squares", older))
        self.base_episodes = int(state["base_episodes"])
        self.recent = deque(map(float, state["recent"]), maxlen=self.window)
