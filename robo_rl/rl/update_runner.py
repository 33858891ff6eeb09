"""Updates from a replay: sample, targets, critics, actor, temperature and target networks, many at a time.

Several updates are one unit of work, which a GPU replays as one graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from robo_rl.data.replay import Batch
from robo_rl.nets.optim.graphs import GraphCache
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import Info

MOST_TOGETHER = 32  # updates in one graph


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
                lambda batch, i, first=first: self.learner.update_number(first + i + 1, batch),  # type: ignore[misc]
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
                ("burn_in", monte_carlo), together, lambda batch, _: self.learner.burn_in(batch, monte_carlo)
            )
            count -= together
        return info

    def _run(self, kind: tuple[str, int | bool], count: int, one: Callable[[Batch, int], Info]) -> Info:
        ready = self.mix.ready()

        def work() -> tuple[Info, Batch]:
            info: Info = {}
            for i in range(count):
                batch = self.sample(ready)
                info |= one(batch, i)
            return info, batch

        info, self.batch = self.graphs.run((*kind, count, ready), work)
        return info

    def sample(self, ready: tuple[str, ...] | None = None) -> Batch:
        """A batch from the buffers `ready`; None: from those that hold data."""
        cfg = self.learner.cfg
        return self.mix.sample(
            cfg.batch,
            self.generator,
            gamma=cfg.gamma,
            n_step=cfg.n_step,
            timeout_is_failure=cfg.timeout_is_failure,
            ready=ready,
        )
