"""The guard of fine-tuning: when training makes the policy worse than the base, go back to the last good
weights.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any


class Guard:
    """Watches the success of training episodes against the base's own.

    The base's rate comes from the episodes collected with the base. A window of the last `window` training
    episodes below it by more than `errors` standard errors of the difference is bad; one at or above it is
    good.
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
        """Is the window "good" or "bad"? "unsure" while it is not full, or the rate lies in between."""
        if len(self.recent) < self.window or not self.base_episodes:
            return "unsure"
        p, q = self.base_rate, self.recent_rate
        # Pooled rate: at p = 0 or 1 the base's own variance would be 0 and one failure would be a verdict.
        pooled = (self.base_successes + sum(self.recent)) / (self.base_episodes + len(self.recent))
        error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / self.base_episodes + 1.0 / len(self.recent)))
        if q < p - self.errors * error:
            return "bad"
        return "good" if q >= p else "unsure"

    def forget(self) -> None:
        """After going back: judge the restored weights by their own episodes."""
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
