"""Measured times of actors and learner: how long each worked and how long it waited for the other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from robo_rl.rl.scale.blocks import Block


@dataclass
class WaitTimes:
    """Sums over a run. *_behind: versions by which the weights that collected a block were older than the
    learner's when the block arrived.
    """

    learner_s: float = 0.0  # of collecting and learning, with an actor ready; no evaluations, no checkpoints
    learner_waited_s: float = 0.0  # of these, waiting for blocks
    actors_busy_s: float = 0.0
    actors_waited_s: float = 0.0  # for permission, and with it for weights
    actors_cpu_s: float = 0.0
    blocks: int = 0
    size_bytes: int = 0  # of all blocks
    most_behind: int = 0
    sum_behind: int = 0

    def add(self, block: Block, behind: int) -> None:
        """Add the times of one block."""
        self.actors_busy_s += block.busy_s
        self.actors_waited_s += block.waited_s
        self.actors_cpu_s += block.cpu_s
        self.blocks += 1
        self.size_bytes += block.size_bytes
        self.most_behind = max(self.most_behind, behind)
        self.sum_behind += behind

    @property
    def learner_share(self) -> float:
        """Share of the learner's time in which it waited for data."""
        return self.learner_waited_s / max(self.learner_s, 1e-9)

    @property
    def actors_share(self) -> float:
        """Share of the actors' time in which they waited for the learner."""
        return self.actors_waited_s / max(self.actors_busy_s + self.actors_waited_s, 1e-9)

    @property
    def mean_behind(self) -> float:
        return self.sum_behind / max(self.blocks, 1)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
