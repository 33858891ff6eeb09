"""Time stamps of a copied episode in the columns of another dataset."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import numpy as np

from robo_rl.data.episodes.commit import write_json_file
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.schema import EPISODE_JSON, NO_STAMP, STAMPS, ZARR_JSON, ArrayMeta
from robo_rl.data.episodes.shard import (
    PayloadFile,
    shard_name,
    tail_bytes,
    zarr_array_json,
    zarr_group_json,
)


def extend_stamps(episode: Episode, copy: Path, columns: Sequence[str]) -> None:
    """Write the stamps of `episode` into its `copy` with these columns; new ones hold -1, unknown."""
    stamps = np.full((episode.frames, len(columns)), NO_STAMP, dtype="int64")
    for i, name in enumerate(episode.dataset.stamps):
        stamps[:, list(columns).index(name)] = episode.array(STAMPS)[:, i]
    folder = copy / STAMPS
    rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with closing(PayloadFile(folder / shard_name(stamps.ndim))) as file:
        file.append(stamps)
        array = ArrayMeta("int64", stamps.shape, file.crc)
        file.append(tail_bytes(array))
    meta = replace(episode.meta, arrays=episode.meta.arrays | {STAMPS: array})
    write_json_file(folder / ZARR_JSON, zarr_array_json(array))
    for name, content in ((EPISODE_JSON, meta.to_json()), (ZARR_JSON, zarr_group_json(meta.arrays))):
        (copy / name).unlink()  # it may be read-only, as files of git-annex are
        write_json_file(copy / name, content)
