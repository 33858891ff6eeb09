"""Replay of situations 1.5 s before collisions, each at most ten times (QuadSwarm, arXiv 2306.09537)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Int64

_EVERY = 25  # steps between two snapshots of all worlds
_BEFORE = 6  # snapshots back: 1.5 s at 100 Hz
_CAPACITY = 64  # stored situations; the oldest is replaced
_USES = 10  # replays of a situation

World = dict[str, Tensor]  # name -> (components, w, d or m)


class CollisionReplay:
    """Snapshots of the last 1.5 s of every world, and situations before collisions."""

    def __init__(self) -> None:
        self._pictures: list[World] = []
        self._moments: list[World] = []
        self._used: list[int] = []
        self._steps = 0

    def __len__(self) -> int:
        return len(self._moments)

    def watch(self, worlds: World, since: Int64[Tensor, " w"], collided: Bool[Tensor, " w"]) -> None:
        """Record one step. since: steps since each world was started in its place."""
        if self._pictures:  # there are none at the first step, where ages are random
            for index in (collided & (since > _EVERY * (_BEFORE + 1))).nonzero()[:, 0].tolist():
                self._keep({name: value[:, index].clone() for name, value in self._pictures[0].items()})
        if self._steps % _EVERY == 0:
            self._pictures = [
                *self._pictures[-_BEFORE:],
                {name: value.clone() for name, value in worlds.items()},
            ]
        self._steps += 1

    def _keep(self, moment: World) -> None:
        if len(self._moments) == _CAPACITY:
            del self._moments[0], self._used[0]
        self._moments.append(moment)
        self._used.append(0)

    def take(self, generator: torch.Generator) -> World:
        """A random situation; after its last replay it is deleted."""
        index = int(torch.randint(len(self._moments), (), generator=generator))
        moment = self._moments[index]
        self._used[index] += 1
        if self._used[index] >= _USES:
            del self._moments[index], self._used[index]
        return moment

    def state_dict(self) -> dict[str, Any]:
        return {
            "pictures": self._pictures,
            "moments": self._moments,
            "used": self._used,
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._pictures, self._moments = list(state["pictures"]), list(state["moments"])
        self._used, self._steps = [int(used) for used in state["used"]], int(state["steps"])


def stacked(moments: list[World]) -> World:
    """Situations stacked along the axis of worlds."""
    return {name: torch.stack([moment[name] for moment in moments], dim=1) for name in moments[0]}
