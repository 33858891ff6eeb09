"""Blocks: finished decisions of an actor's lanes on their way to the replay of the learner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robo_rl.core.lanes import Lanes
from robo_rl.data.replay import Replay
from robo_rl.rl.running import CollectedEpisode

COLUMNS = (*Replay.VECTORS, "reward", "steps", "demo", *Replay.FLAGS)


@dataclass(frozen=True)
class Decisions:
    """Decisions for one store, in the order in which they finished.

    lanes: (r,), the actor's lane of every decision. columns: name -> (r,) or (r, width). earlier: new rewards
    for the newest decisions of these lanes that an earlier block held.
    """

    lanes: NDArray[np.int64]
    columns: dict[str, NDArray[np.generic]]
    earlier: dict[int, float]

    @property
    def size_bytes(self) -> int:
        return self.lanes.nbytes + sum(column.nbytes for column in self.columns.values())

    def add_to(self, store: Replay, first_lane: int, gamma: float) -> None:
        """Add the decisions to a replay, whose lanes from `first_lane` on belong to the actor.

        Lanes are independent, so the k-th decisions of all lanes are added together.
        """
        device = store.head.device
        for lane, reward in self.earlier.items():
            store.set_last_reward(Lanes.of(torch.tensor([first_lane + lane], device=device)), reward)
        if not len(self.lanes):
            return
        # Arrays from an object store are read-only, which torch does not support.
        values = {name: torch.tensor(column, device=device) for name, column in self.columns.items()}
        lanes = torch.tensor(self.lanes, device=device) + first_lane
        rank = _rank(self.lanes)
        for k in range(int(rank.max()) + 1):
            rows = torch.tensor(np.flatnonzero(rank == k), device=device)
            store.add(Lanes.of(lanes[rows]), {name: value[rows] for name, value in values.items()}, gamma)


@dataclass(frozen=True)
class Block:
    """Experience that one call of an actor has collected.

    incarnation: how often the actor had been replaced. version: of the weights that acted. env_steps: of all
    lanes. decisions: store -> its decisions. largest_reward: see `RewardTransform`. busy_s, waited_s: wall
    time of the call, and between the end of the actor's previous call and its start. cpu_s: of the call.
    """

    incarnation: int
    version: int
    env_steps: int
    decisions: dict[str, Decisions]
    episodes: list[CollectedEpisode]
    largest_reward: float
    busy_s: float
    waited_s: float
    cpu_s: float

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.decisions.values())


@dataclass
class BlockStore:
    """Store of an actor: gathers decisions until `take`. It has the interface of a replay for writing.

    Works on the host with the lanes taken out, not in their masked form.
    """

    _lanes: list[Tensor] = field(default_factory=list)
    _values: list[dict[str, Tensor]] = field(default_factory=list)
    _earlier: dict[int, float] = field(default_factory=dict)

    def add(self, lanes: Lanes, values: Mapping[str, Tensor], gamma: float) -> None:
        """Keep one decision of each of these lanes."""
        assert lanes.mask is None
        self._lanes.append(lanes.ids.clone())
        self._values.append({name: values[name].clone() for name in COLUMNS})

    def set_last_reward(self, lanes: Lanes, reward: float) -> None:
        """Overwrite the reward of the newest decision of these lanes, in this block or an earlier one."""
        for lane in lanes.ids.tolist():
            for ids, values in zip(reversed(self._lanes), reversed(self._values), strict=True):
                if len(at := (ids == lane).nonzero()):
                    values["reward"][at[0, 0]] = reward
                    break
            else:
                self._earlier[lane] = reward

    def take(self) -> Decisions:
        """The decisions since the last call."""
        joined = {
            name: torch.cat([values[name] for values in self._values]).numpy()
            for name in (COLUMNS if self._values else ())
        }
        lanes = torch.cat(self._lanes).numpy() if self._lanes else np.zeros(0, np.int64)
        taken = Decisions(lanes, joined, self._earlier)
        self._lanes, self._values, self._earlier = [], [], {}
        return taken


def _rank(lanes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of earlier rows with the same lane, for each row."""
    order = np.argsort(lanes, kind="stable")
    ordered = lanes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    counts = np.diff(np.r_[starts, len(lanes)])
    rank = np.empty_like(lanes)
    rank[order] = np.arange(len(lanes)) - np.repeat(starts, counts)
    return rank
