"""Random starts of episodes, drawn for many episodes at once: a few cost as much as many, and few end in one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from robo_rl.core.seeding import EpisodeSeeds
from sim.drive import Begun, Drive
from sim.engines.protocol import Start
from sim.keyed import keyed_uniform

AHEAD = 256  # episodes
_START = 0  # stream of an episode's random numbers


class StartsAhead:
    """How episodes begin. A start is its seed's alone, so that it may be drawn at any time, whatever comes then."""

    _begun: Begun

    def __init__(self, drive: Drive, device: Any) -> None:
        self._drive, self._device = drive, device
        self._row: dict[int, int] = {}  # seed -> where its start stands in what was drawn

    def of(self, taken: Sequence[int], seeds: Iterator[int] | None) -> Begun:
        """Starts of the episodes `taken`, in fresh tensors. seeds: where those after them will come from."""
        if any(seed not in self._row for seed in taken):
            coming = list(dict.fromkeys([*taken, *_next(seeds, AHEAD)]))
            keys = torch.tensor(coming, device=self._device)
            self._begun = self._drive.start(keyed_uniform(keys, 0, self._drive.numbers, _START).T)
            self._row = {seed: row for row, seed in enumerate(coming)}
        rows = torch.tensor([self._row[seed] for seed in taken], device=self._device)
        start, goal, memory = self._begun
        return Begun(_rows(start, rows), goal[rows], memory[rows])


def _next(seeds: Iterator[int] | None, count: int) -> Iterator[int]:
    """Seeds that will come, without taking them: only an `EpisodeSeeds` can tell."""
    return islice(EpisodeSeeds(seeds.root, seeds.count), count) if isinstance(seeds, EpisodeSeeds) else iter(())


def _rows(start: Start, rows: Int[Tensor, " k"]) -> Start:
    qvel = None if start.qvel is None else start.qvel[rows]
    return Start(start.qpos[rows], start.ctrl[rows], start.fixture_m[rows], start.fixture_quat[rows], qvel)
