"""Initial conditions of worlds, drawn in large batches: one at a time they would take longer than flying."""

from __future__ import annotations

from collections.abc import Callable

from sim.tasks.swarm.scenarios import Setup

# Worlds drawn at a time in training: few, so that a curriculum acts soon; a multiple of 1 to 5 scenarios.
POOL = 60


class WorldPool:
    """Batches of worlds, made by `draw(num)`. size: of the first batch; least: smallest later batch."""

    def __init__(self, draw: Callable[[int], Setup], size: int, least: int) -> None:
        self._draw, self._least = draw, least
        self.setup, self.taken = draw(size), 0

    def take(self, num: int) -> Setup:
        """The next `num` worlds."""
        if self.taken + num > self.setup.start_m.shape[1]:
            self.setup, self.taken = self._draw(max(self._least, num)), 0
        chosen = slice(self.taken, self.taken + num)
        self.taken += num
        drawn = self.setup
        fields = (drawn.cylinders, drawn.start_m, drawn.goal)
        cylinders, start_m, goal = (values[:, chosen] for values in fields)
        return Setup(cylinders, start_m, goal, drawn.scenario[chosen])
