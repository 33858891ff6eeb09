"""Random starts of episodes and what is seen there, for many at once: a few cost as much, and few end in one
step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from robo_rl.core.seeding import EpisodeSeeds
from sim.bodies.protocol import Begun, Drive, SceneTask
from sim.engines.forward_kinematics import ForwardKinematics
from sim.engines.protocol import Engine, Start
from sim.vec.keyed_random import keyed_uniform

AHEAD = 256  # episodes
_START = 0  # stream of an episode's random numbers


class EpisodeStart(NamedTuple):
    """How k episodes begin, and what is seen then, without noise."""

    begun: Begun
    obs: Float[Tensor, "k o"]  # float32


class ResetPrefetch:
    """How episodes begin. A start is its seed's alone, so that it may be drawn at any time, whatever comes
    then.
    """

    _first: EpisodeStart

    def __init__(self, task: SceneTask, drive: Drive, engine: Engine) -> None:
        self._task, self._drive, self._device = task, drive, engine.device
        self._standing = ForwardKinematics(engine.scene)
        self._row: dict[int, int] = {}  # seed -> where its start stands in what was drawn

    def of(self, taken: Sequence[int], seeds: Iterator[int] | None) -> EpisodeStart:
        """Starts of the episodes `taken`, in fresh tensors. seeds: where those after them will come from."""
        if any(seed not in self._row for seed in taken):
            coming = list(dict.fromkeys([*taken, *_next(seeds, AHEAD)]))
            self._first = self._draw(torch.tensor(coming, device=self._device))
            self._row = {seed: row for row, seed in enumerate(coming)}
        rows = torch.tensor([self._row[seed] for seed in taken], device=self._device)
        (start, goal, memory), obs = self._first
        return EpisodeStart(Begun(_rows(start, rows), goal[rows], memory[rows]), obs[rows])

    def _draw(self, seeds: Int[Tensor, " k"]) -> EpisodeStart:
        begun = self._drive.start(keyed_uniform(seeds, 0, self._drive.numbers, _START).T)
        seen = self._drive.view(self._standing.at(begun.start), begun.goal)
        return EpisodeStart(begun, self._task.observe(seen).to(torch.float32))


def _next(seeds: Iterator[int] | None, count: int) -> Iterator[int]:
    """Seeds that will come, without taking them: only an `EpisodeSeeds` can tell."""
    return (
        islice(EpisodeSeeds(seeds.root, seeds.count), count) if isinstance(seeds, EpisodeSeeds) else iter(())
    )


def _rows(start: Start, rows: Int[Tensor, " k"]) -> Start:
    qvel = None if start.qvel is None else start.qvel[rows]
    return Start(start.qpos[rows], start.ctrl[rows], start.fixture_m[rows], start.fixture_quat[rows], qvel)
