"""Writing arrays and labels of an episode in a folder that no reader sees yet: a copy, or a new episode."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Shaped
from robo_rl.data.episodes.commit import write_json_file
from robo_rl.data.episodes.schema import EPISODE_JSON, ZARR_JSON, ArrayMeta, EpisodeMeta
from robo_rl.data.episodes.shard import (
    PayloadFile,
    shard_name,
    tail_bytes,
    zarr_array_json,
    zarr_group_json,
)


def write_array(folder: Path, rows: Shaped[ndarray, "n ..."]) -> ArrayMeta:
    """Write one array of an episode, with its zarr.json, over an older one; returns its entry."""
    rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with closing(PayloadFile(folder / shard_name(rows.ndim))) as file:
        file.append(np.ascontiguousarray(rows))
        array = ArrayMeta(str(rows.dtype), rows.shape, file.crc)
        file.append(tail_bytes(array))
    write_json_file(folder / ZARR_JSON, zarr_array_json(array))
    return array


def write_meta(folder: Path, meta: EpisodeMeta) -> None:
    """Write episode.json and zarr.json over older ones, which may be links or read-only."""
    for name, content in ((EPISODE_JSON, meta.to_json()), (ZARR_JSON, zarr_group_json(meta.arrays))):
        (folder / name).unlink(missing_ok=True)
        write_json_file(folder / name, content)


def rewrite_arrays(folder: Path, meta: EpisodeMeta, arrays: Mapping[str, Shaped[ndarray, "n ..."]]) -> None:
    """Replace some arrays of a copied episode; `meta` is its episode.json with the old ones."""
    written = {name: write_array(folder / name, rows) for name, rows in arrays.items()}
    write_meta(folder, replace(meta, arrays=meta.arrays | written))
