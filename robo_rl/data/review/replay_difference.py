"""Differences between a recorded episode and its repetition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float, Shaped, UInt8
from robo_rl.core.spec import sense_of
from robo_rl.data import jpeg
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
    """Largest difference of every observation, over the rows that both have. seen: of the repetition.

    Where the dataset stores pictures as JPEG, those of the repetition are compressed alike, because the
    recorded ones differ from what was seen by the loss of compression.
    """
    found = []
    for key, spec in episode.dataset.env.obs.items():
        rows = min(len(seen), episode.obs_rows)
        if sense_of(key, spec) == "text" or key not in seen[0] or not rows:
            continue
        recorded = episode.obs(key, 0, rows).astype(np.float64)
        repeated = np.stack([each[key] for each in seen[:rows]])
        error = _row_errors(recorded, repeated)
        if key in episode.dataset.jpeg_keys and repeated.shape == recorded.shape:
            stored = _compressed(repeated, episode.dataset.jpeg_quality)
            error = np.minimum(error, _row_errors(recorded, stored))
        scale = float(np.ptp(np.nan_to_num(recorded)))
        found.append(ReplayDifference(key, float(error.max()), int(error.argmax()), scale))
    return found


def _row_errors(
    recorded: Float[ndarray, "rows ..."], repeated: Shaped[ndarray, "rows ..."]
) -> Float[ndarray, " rows"]:
    """Largest difference in each row."""
    error = np.abs(np.nan_to_num(recorded - repeated.astype(np.float64)))
    largest: ndarray = error.reshape(len(recorded), -1).max(axis=1)
    return largest


def _compressed(pictures: UInt8[ndarray, "rows h w 3"], quality: int) -> UInt8[ndarray, "rows h w 3"]:
    """The pictures after JPEG compression of this quality."""
    out = np.empty_like(pictures)
    for picture, stored in zip(pictures, out, strict=True):
        jpeg.decode(jpeg.encode(picture, quality), stored)
    return out
