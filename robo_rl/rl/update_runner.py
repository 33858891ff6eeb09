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
        info: Info = {}
        while count:
            together = min(count, MOST_TOGETHER)
            first = self.learner.updates
            info |= self._run(
                ("update", first % self.learner.period),
                together,
                lambda batch, i, logs, first=first: self.learner.update_number(first + i + 1, batch, logs),  # type: ignore[misc]
            )
            self.learner.updates += together
            count -= together
        return info

    def burn_in(self, count: int, monte_carlo: bool) -> Info:
        """Logs of the last of `count` updates of the critics to the base's value."""
        info: Info = {}
        while count:
            together = min(count, MOST_TOGETHER)
            info = self._run(
                ("burn_in", monte_carlo),
                together,
                lambda batch, i, logs: self.learner.burn_in(batch, monte_carlo),
            )
            count -= together
        return info

    def _run(self, kind: tuple[str, int | bool], count: int, one: Callable[[Batch, int, bool], Info]) -> Info:
        """one(batch, its number, whether its logs are kept): an update."""
        ready, logged = self.mix.ready(), count - self.learner.period

        def work() -> tuple[Info, Batch]:
            info: Info = {}
            with self.learner.context.products():
                for i, batch in enumerate(self._batches(count, ready)):
                    info |= one(batch, i, i >= logged)
            return info, batch

        info, self.batch = self.graphs.run((*kind, count, ready), work)
        return info

    def _batches(self, count: int, ready: tuple[str, ...]) -> Iterator[Batch]:
        """`count` batches. On a CPU, where each operation has a price, several are drawn at once."""
        most = 1
        if self.graphs.off and self.learner.encoder is None:
            most = max(1, MOST_ROWS // self.learner.cfg.batch)
        while count:
            together = min(count, most)
            yield from self._draw(together, ready)
            count -= together

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
