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
    human: list[bool] = field(default_factory=list)  # steps in which a human acted; empty: none
    terminated: bool = False
    success: bool | None = None  # None: unknown
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
        human = episode.human or [False] * len(episode.action)
        steps = zip(episode.action, episode.reward, human, strict=True)
        for i, (action, reward, acted) in enumerate(steps):
            ended = episode.terminated and i == last
            stored.add(seen[i], action, reward=reward, terminated=ended, intervention=acted)
        return stored.commit(success=episode.success, final_obs=seen[-1])
