"""Episode seeds on the device, for engines whose lanes end without the host's knowledge."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from robo_rl.core.errors import EnvError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.shapes import Bool, Int64

REFILL_EVERY = 50  # control steps between two reads of the number of seeds taken


class SeedQueue:
    """The next seeds of `seeds`, ahead of time on the device. Lanes that end take them in lane order.

    The host does not know how many lanes end in a step. Every `REFILL_EVERY` steps it reads how many seeds
    were taken, advances `seeds` by as many, and fills the queue up to what as many steps can take at most.
    Raises EnvError for seeds that cannot be looked ahead of.
    """

    def __init__(self, seeds: Iterator[int], num_envs: int, device: torch.device) -> None:
        if not isinstance(seeds, EpisodeSeeds):
            raise EnvError(
                "An environment whose results stay on the device looks ahead in its seeds, and this iterator "
                "cannot tell them. Give robo_rl.core.seeding.EpisodeSeeds."
            )
        self.seeds, self._num, self._device = seeds, num_envs, device
        self._coming = torch.zeros(0, dtype=torch.long, device=device)
        self._taken = torch.zeros((), dtype=torch.long, device=device)  # since the last refill
        self._steps = 0
        self._refill()

    def take(self, ended: Bool[Tensor, " n"], running: Int64[Tensor, " n"]) -> Int64[Tensor, " n"]:
        """Seeds of all lanes after a step: a new one where an episode ended, else that of `running`."""
        if self._steps == REFILL_EVERY:
            self._refill()
        self._steps += 1
        following = self._coming[(self._taken + ended.cumsum(0) - 1).clamp(min=0)]
        self._taken = self._taken + ended.sum()
        return torch.where(ended, following, running)

    def synchronise(self) -> EpisodeSeeds:
        """The iterator of seeds, behind the last one that was taken. Reads the device."""
        self._refill()
        return self.seeds

    def _refill(self) -> None:
        taken = int(self._taken)
        for _ in range(taken):
            next(self.seeds)
        kept = self._coming[taken:]
        first = self.seeds.count + len(kept)
        ahead = islice(EpisodeSeeds(self.seeds.root, first), self._num * REFILL_EVERY - len(kept))
        self._coming = torch.cat([kept, torch.tensor(list(ahead), dtype=torch.long, device=self._device)])
        self._taken, self._steps = torch.zeros_like(self._taken), 0
