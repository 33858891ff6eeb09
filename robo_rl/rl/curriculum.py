"""Curriculum over tasks: episodes go more often to tasks that fail.

A task's chance is proportional to its failure rate, and at least `least`. The rate is a mean over its last
episodes with a prior of half a success in one episode, so that all tasks start alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from robo_rl.core.seeding import EpisodeSeeds, derive_seed

RECENT = 30  # last episodes of a task that count


class TaskCurriculum:
    """Recent success of each task, and the chances of drawing them. least: smallest weight of a task."""

    def __init__(self, tasks: int, least: float = 0.1) -> None:
        self.least = least
        self._recent: list[deque[bool]] = [deque(maxlen=RECENT) for _ in range(tasks)]

    def add(self, task: int, success: bool) -> None:
        """Count one episode of a task."""
        self._recent[task].append(success)

    def chances(self) -> list[float]:
        """Chance of each task in the next draw."""
        failing = [1.0 - (0.5 + sum(each)) / (1.0 + len(each)) for each in self._recent]
        weights = [max(self.least, rate) for rate in failing]
        return [weight / sum(weights) for weight in weights]

    def state_dict(self) -> dict[str, Any]:
        return {"recent": [list(each) for each in self._recent]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._recent = [deque(each, maxlen=RECENT) for each in state["recent"]]


class CurriculumSeeds(EpisodeSeeds):
    """Endless episode seeds whose tasks are drawn by `curriculum`; seeds of other tasks are passed over.

    A draw is a function of the root, `count` and the curriculum; `count` includes the seeds that were passed
    over. task_of: number of the task in the episode of a seed.
    """

    def __init__(
        self,
        root: str | Sequence[int | str],
        curriculum: TaskCurriculum,
        task_of: Callable[[int], int],
        start: int = 0,
    ) -> None:
        super().__init__(root, start)
        self.curriculum, self._task_of = curriculum, task_of

    def __next__(self) -> int:
        rng = np.random.default_rng(derive_seed(*self.root, "task", self.count))
        chances = self.curriculum.chances()
        wanted = int(rng.choice(len(chances), p=chances))
        while self._task_of(seed := super().__next__()) != wanted:
            pass
        return seed
