"""Worlds for a swarm, drawn in large batches: one by one, drawing would cost more than flying."""

from __future__ import annotations

from collections.abc import Callable

from sim.tasks.swarm.scenarios import Setup

POOL = 256  # worlds drawn at a time in training


class WorldPool:
    """`take` hands out the next worlds of a batch; `draw(num)` makes a new one. size: least of a batch."""

    def __init__(self, draw: Callable[[int], Setup], size: int, least: int) -> None:
        self._draw, self._least = draw, least
        self.setup, self.taken = draw(size), 0

    def take(self, num: int) -> Setup:
        if self.taken + num > self.setup.start_m.shape[1]:
            self.setup, self.taken = self._draw(max(self._least, num)), 0
        chosen = slice(self.taken, self.taken + num)
        self.taken += num
        drawn = self.setup
        cylinders, start_m, goal = (rows[:, chosen] for rows in (drawn.cylinders, drawn.start_m, drawn.goal))
        return Setup(cylinders, start_m, goal, drawn.scenario[chosen])
