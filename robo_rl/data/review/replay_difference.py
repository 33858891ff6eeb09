"""Differences between a recorded episode and its repetition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Shaped
from robo_rl.core.spec import sense_of
from robo_rl.data.episodes.reader import Episode


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """Largest difference of one observation, in its own units, and the row where it is. scale: the
    range of the recorded values.
    """

    key: str
    largest: float
    row: int
    scale: float


def replay_differences(
    episode: Episode, seen: Sequence[Mapping[str, Shaped[ndarray, "..."]]]
) -> list[ReplayDifference]:
    """Largest difference of every observation, over the rows that both have. seen: of the repetition."""
    found = []
    for key, spec in episode.dataset.env.obs.items():
        rows = min(len(seen), episode.obs_rows)
        if sense_of(key, spec) == "text" or key not in seen[0] or not rows:
            continue
        recorded = episode.obs(key, 0, rows).astype(np.float64)
        repeated = np.stack([each[key] for each in seen[:rows]]).astype(np.float64)
        error = np.abs(np.nan_to_num(recorded - repeated)).reshape(rows, -1).max(axis=1)
        scale = float(np.ptp(np.nan_to_num(recorded)))
        found.append(ReplayDifference(key, float(error.max()), int(error.argmax()), scale))
    return found
