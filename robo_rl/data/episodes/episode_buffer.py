"""Episode in memory, written or dropped when its outcome is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.data.episodes.dataset_writer import DatasetWriter


@dataclass
class EpisodeBuffer:
    """One episode. When it has ended, `obs` has one more entry than the rest: the observation after the last
    action.
    """

    seed: int
    obs: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    action: list[NDArray[np.float32]] = field(default_factory=list)  # in the units of the environment
    reward: list[float] = field(default_factory=list)
    terminated: bool = False
    success: bool = False
    done: bool = False
    task: int = 0  # its number in an environment of several tasks


def write_episode(
    writer: DatasetWriter, episode: EpisodeBuffer, *, task: str = "", info: Mapping[str, Any] | None = None
) -> int:
    """Commit a finished episode; returns its number. Raises DataError and DiskFullError.

    Observations outside the dataset's contract are left out: what only scripted experts read.
    """
    seen = [{key: obs[key] for key in obs if key in writer.spec.obs} for obs in episode.obs]
    with writer.episode(task=task, seed=episode.seed, info=info) as stored:
        last = len(episode.action) - 1
        for i, (action, reward) in enumerate(zip(episode.action, episode.reward, strict=True)):
            stored.add(seen[i], action, reward=reward, terminated=episode.terminated and i == last)
        return stored.commit(success=episode.success, final_obs=seen[-1])
