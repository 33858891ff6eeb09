"""Updates from a replay: sample, targets, critics, actor, temperature and target networks, many at a time.

Several updates are one unit of work, which a GPU replays as one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from robo_rl.data.replay import Batch
from robo_rl.nets.optim.graphs import GraphCache
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import Info

MOST_TOGETHER = 32  # updates in one graph
MOST_ROWS = 8192  # of batches that are drawn at once: more would leave the cache


class UpdateRunner:
    """Samples batches and updates the learner. `batch`: the last one, None before the first."""

    def __init__(
        self, learner: OffPolicyLearner, mix: ReplayMix, generator: torch.Generator, graphs: GraphCache
    ) -> None:
        self.learner, self.mix, self.generator, self.graphs = learner, mix, generator, graphs
        self.batch: Batch | None = None

    def update(self, count: int) -> Info:
        """Logs of `count` updates; where several have the same name, the last."""
        learner, info = self.learner, Info()
        for together in pieces(count, MOST_TOGETHER):
            kind = ("update", learner.updates % learner.period)
            info |= self._run(kind, together, learner.updates, learner.update_number)
            learner.updates += together
        return info

    def burn_in(self, count: int, monte_carlo: bool) -> Info:
        """Logs of the last of `count` updates of the critics to the base's value."""

        def one(number: int, batch: Batch, logs: bool) -> Info:
            return self.learner.burn_in(batch, monte_carlo)

        info = Info()
        for together in pieces(count, MOST_TOGETHER):
            info = self._run(("burn_in", monte_carlo), together, 0, one)
        return info

    def _run(
        self, kind: tuple[str, int | bool], count: int, done: int, one: Callable[[int, Batch, bool], Info]
    ) -> Info:
        """Logs of `count` updates after the first `done`. one(number, batch, whether its logs are kept)."""
        ready, logged = self.mix.ready(), count - self.learner.period

        def work() -> tuple[Info, Batch]:
            info: Info = {}
            with self.learner.context.products():
                for i, batch in enumerate(self._batches(count, ready)):
                    info |= one(done + i + 1, batch, i >= logged)
            return info, batch

        info, self.batch = self.graphs.run((*kind, count, ready), work)
        return info

    def _batches(self, count: int, ready: tuple[str, ...]) -> Iterator[Batch]:
        """`count` batches. On a CPU, where each operation has a price, several are drawn at once."""
        most = 1
        if self.graphs.off and self.learner.encoder is None:
            most = max(1, MOST_ROWS // self.learner.cfg.batch)
        for together in pieces(count, most):
            yield from self._draw(together, ready)

    def sample(self, ready: tuple[str, ...] | None = None) -> Batch:
        """A batch from the buffers `ready`; None: from those that hold data."""
        return self._draw(1, ready)[0]

    def _draw(self, count: int, ready: tuple[str, ...] | None) -> list[Batch]:
        cfg = self.learner.cfg
        return self.mix.batches(
            count,
            cfg.batch,
            self.generator,
            gamma=cfg.gamma,
            n_step=cfg.n_step,
            timeout_is_failure=cfg.timeout_is_failure,
            ready=ready,
        )


def pieces(count: int, most: int) -> list[int]:
    """`count` in parts of `most`, the last of which may be smaller."""
    return [min(most, count - done) for done in range(0, count, most)]
