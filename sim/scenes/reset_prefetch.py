"""Random starts of episodes and their first observations, computed in batches: a few cost as much as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from robo_rl.core.keyed_random import keyed_uniform
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.shapes import Float, Int
from sim.bodies.protocol import Drive, DriveStart, SceneTask
from sim.engines.forward_kinematics import ForwardKinematics
from sim.engines.protocol import Engine, Start

AHEAD = 256  # episodes
_START = 0  # stream of an episode's random numbers


class EpisodeStart(NamedTuple):
    """Start and first observation, without noise, of k episodes."""

    begun: DriveStart
    obs: Float[Tensor, "k o"]  # float32


class ResetPrefetch:
    """Starts of episodes. A start depends on its seed alone, so it can be computed before it is needed."""

    _first: EpisodeStart

    def __init__(self, task: SceneTask, drive: Drive, engine: Engine) -> None:
        self._task, self._drive, self._device = task, drive, engine.device
        self._standing = ForwardKinematics(engine.scene)
        self._row: dict[int, int] = {}  # seed -> row of its start in the batch

    def of(self, taken: Sequence[int], seeds: Iterator[int] | None) -> EpisodeStart:
        """Starts of the episodes `taken`, in fresh tensors. seeds: source of the following seeds."""
        if any(seed not in self._row for seed in taken):
            coming = list(dict.fromkeys([*taken, *_next(seeds, AHEAD)]))
            self._first = self._with_obs(torch.tensor(coming, device=self._device))
            self._row = {seed: row for row, seed in enumerate(coming)}
        rows = torch.tensor([self._row[seed] for seed in taken], device=self._device)
        (start, goal, memory), obs = self._first
        return EpisodeStart(DriveStart(_rows(start, rows), goal[rows], memory[rows]), obs[rows])

    def draw(self, seeds: Int[Tensor, " k"]) -> DriveStart:
        """Starts of the episodes of these seeds, by operations on the seeds' device alone."""
        return self._drive.start(keyed_uniform(seeds, 0, self._drive.numbers, _START).T)

    def _with_obs(self, seeds: Int[Tensor, " k"]) -> EpisodeStart:
        begun = self.draw(seeds)
        seen = self._drive.view(self._standing.at(begun.start), begun.goal)
        return EpisodeStart(begun, self._task.observe(seen).to(torch.float32))


def _next(seeds: Iterator[int] | None, count: int) -> Iterator[int]:
    """Following seeds, without consuming them: only an `EpisodeSeeds` can tell."""
    return (
        islice(EpisodeSeeds(seeds.root, seeds.count), count) if isinstance(seeds, EpisodeSeeds) else iter(())
    )


def _rows(start: Start, rows: Int[Tensor, " k"]) -> Start:
    qvel = None if start.qvel is None else start.qvel[rows]
    return Start(start.qpos[rows], start.ctrl[rows], start.fixture_m[rows], start.fixture_quat[rows], qvel)
