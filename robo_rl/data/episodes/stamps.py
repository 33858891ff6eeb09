"""Time stamps of a copied episode in the columns of another dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.rewrite import rewrite_arrays
from robo_rl.data.episodes.schema import NO_STAMP, STAMPS


def extend_stamps(episode: Episode, copy: Path, columns: Sequence[str]) -> None:
    """Write the stamps of `episode` into its `copy` with these columns; new ones hold -1, unknown."""
    stamps = np.full((episode.frames, len(columns)), NO_STAMP, dtype="int64")
    for i, name in enumerate(episode.dataset.stamps):
        stamps[:, list(columns).index(name)] = episode.array(STAMPS)[:, i]
    rewrite_arrays(copy, episode.meta, {STAMPS: stamps})
