"""Guard of fine-tuning: restores the last good weights when training makes the policy worse than the base."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any


class Guard:
    """Compares the success rate of training episodes with the base's.

    The base's rate comes from episodes collected with the base. The last `window` training episodes are "bad"
    if their rate is more than `errors` standard errors of the difference below the base's, and "good" if it
    is at least the base's.
    """

    def __init__(self, window: int = 40, errors: float = 2.0) -> None:
        self.window, self.errors = window, errors
        self.base_successes, self.base_episodes = 0, 0
        self.recent: deque[bool] = deque(maxlen=window)

    def add_base(self, success: bool) -> None:
        self.base_successes += success
        self.base_episodes += 1

    def add(self, success: bool) -> None:
        self.recent.append(success)

    @property
    def base_rate(self) -> float:
        return self.base_successes / self.base_episodes if self.base_episodes else 0.0

    @property
    def recent_rate(self) -> float:
        return sum(self.recent) / len(self.recent) if self.recent else math.nan

    def verdict(self) -> str:
        """Verdict on the window: "good", "bad", or "unsure" while it is not full or the rate lies between."""
        if len(self.recent) < self.window or not self.base_episodes:
            return "unsure"
        p, q = self.base_rate, self.recent_rate
        # Pooled rate: at p = 0 or 1 the base's own variance is 0, and a single failure would decide.
        pooled = (self.base_successes + sum(self.recent)) / (self.base_episodes + len(self.recent))
        error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / self.base_episodes + 1.0 / len(self.recent)))
        if q < p - self.errors * error:
            return "bad"
        return "good" if q >= p else "unsure"

    def forget(self) -> None:
        """Empty the window after weights were restored: their own episodes are to be judged."""
        self.recent.clear()

    def state_dict(self) -> dict[str, Any]:
        return {
            "base_successes": self.base_successes,
            "base_episodes": self.base_episodes,
            "recent": [bool(x) for x in self.recent],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.base_successes, self.base_episodes = int(state["base_successes"]), int(state["base_episodes"])
        self.recent = deque(state["recent"], maxlen=self.window)
