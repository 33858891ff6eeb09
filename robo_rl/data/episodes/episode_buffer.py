"""An episode in memory, until it is known whether it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.data.episodes.dataset_writer import DatasetWriter


@dataclass
class EpisodeBuffer:
    """One episode. When done, `obs` has one row more than the rest: the observation after the last action."""

    seed: int
    obs: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    action: list[NDArray[np.float32]] = field(default_factory=list)  # in the units of the environment
    reward: list[float] = field(default_factory=list)
    terminated: bool = False
    success: bool = False
    done: bool = False


def write_episode(
    writer: DatasetWriter, take: EpisodeBuffer, *, task: str = "", info: Mapping[str, Any] | None = None
) -> int:
    """Commit a finished episode and return its number. Raises DataError and DiskFullError."""
    with writer.episode(task=task, seed=take.seed, info=info) as episode:
        last = len(take.action) - 1
        for i, (action, reward) in enumerate(zip(take.action, take.reward, strict=True)):
            episode.add(take.obs[i], action, reward=reward, terminated=take.terminated and i == last)
        return episode.commit(success=take.success, final_obs=take.obs[-1])
