"""Export as RLDS: TFRecord shards with one episode per record, readable by TensorFlow Datasets.

    <out>/features.json dataset_info.json robo_rl.json <name>-train.tfrecord-00000-of-00001

A step holds observation, action, reward, discount, is_first, is_last, is_terminal and
language_instruction. With an observation after the last action there is one step more, whose action and
reward are zeros.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped
from robo_rl.core.spec import EnvSpec, sense_of
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.schema import DatasetMeta
from robo_rl.data.formats.output import new_output
from robo_rl.data.formats.pictures import encode_png
from robo_rl.data.formats.rlds import schema
from robo_rl.data.formats.rlds.records import Value, encode_example, write_record
from robo_rl.data.formats.rows import (
    SIDECAR,
    EpisodeRows,
    checksum,
    raw_bytes,
    rows_of,
    short_name,
    sidecar,
)

SHARD_BYTES = 1 << 28  # of raw values
OWN = "robo_rl.json"
Progress = Callable[[int, int], None] | None


def export_rlds(path: str | Path, out: str | Path, progress: Progress = None) -> int:
    """Write a dataset as RLDS; returns the number of episodes. Raises DataError if it is empty."""
    store = EpisodeStore(path)
    if not len(store):
        raise DataError(f"{path} holds no episodes to export.")
    name = re.sub(r"[^a-z0-9_]+", "_", store.spec.name.rpartition("/")[2].lower()).strip("_") or "episodes"
    shards = min(len(store), max(1, math.ceil(raw_bytes(store) / SHARD_BYTES)))
    borders = np.linspace(0, len(store), shards + 1).round().astype(int).tolist()
    sizes, checksums = 0, []
    with new_output(out) as partial:
        partial.mkdir()
        for shard in range(shards):
            target = partial / f"{name}-train.tfrecord-{shard:05d}-of-{shards:05d}"
            with target.open("wb") as file:
                for i in range(borders[shard], borders[shard + 1]):
                    rows = rows_of(store.episode(i))
                    checksums.append(checksum(rows))
                    write_record(file, encode_example(_example(rows, store.meta)))
                    if progress is not None:
                        progress(i + 1, len(store))
            sizes += target.stat().st_size
        lengths = np.diff(borders).tolist()
        _write(partial / schema.FEATURES, _features(store.meta))
        _write(partial / schema.DATASET_INFO, _info(name, sizes, lengths))
        _write(partial / OWN, sidecar(store, checksums))
    return len(store)


def is_exact(dtype: str) -> bool:
    """True for types that lists of float32 or int64 hold exactly."""
    return dtype != "float64"


def is_png(env: EnvSpec, key: str) -> bool:
    """True for images and segmentations, which are stored as PNG."""
    return sense_of(key, env.obs[key]) in ("image", "segmentation") and env.obs[key].shape[-1] in (1, 3)


def _example(rows: EpisodeRows, meta: DatasetMeta) -> dict[str, Value]:
    """Features of one episode."""
    n, count = rows.frames, rows.frames + rows.has_final_obs
    found: dict[str, Value] = {}
    for key, values in rows.obs.items():
        name = f"steps/observation/{short_name(meta.env, key)}"
        if is_png(meta.env, key):
            found[name] = [encode_png(each).tobytes() for each in values]
        else:
            found[name] = _list(values)
            if not is_exact(str(values.dtype)):
                found[f"{SIDECAR}/obs/{key}"] = [np.ascontiguousarray(values).tobytes()]
    last = np.arange(count) == count - 1
    found["steps/action"] = _list(_padded(rows.action, count))
    found["steps/reward"] = _list(_padded(rows.reward, count))
    found["steps/discount"] = np.ones(count, dtype=np.float32)
    found["steps/is_first"] = _list(np.arange(count) == 0)
    found["steps/is_last"] = _list(last)
    found["steps/is_terminal"] = _list(last & bool(rows.terminated[-1]))
    found["steps/intervention"] = _list(_padded(rows.intervention, count))
    found["steps/language_instruction"] = [rows.labels.task.encode()] * count
    found["episode_metadata/success"] = np.array([-1 if rows.labels.success is None else rows.labels.success])
    found[f"{SIDECAR}/terminated"] = _list(rows.terminated)
    for name, stamps in rows.stamps.items():
        found[f"{SIDECAR}/stamps/{name}"] = _list(stamps[:n])
    return found


def _list(values: Shaped[ndarray, "n ..."]) -> Value:
    flat = values.reshape(-1)
    return flat.astype(np.float32 if values.dtype.kind == "f" else np.int64)


def _padded(values: Shaped[ndarray, "n ..."], count: int) -> Shaped[ndarray, "m ..."]:
    """Rows with zeros for a step after the last action."""
    return np.concatenate([values, np.zeros((count - len(values), *values.shape[1:]), dtype=values.dtype)])


def _features(meta: DatasetMeta) -> dict[str, Any]:
    """Types of all features for TensorFlow Datasets."""
    observation = {}
    for key, spec in meta.env.obs.items():
        dtype = "float32" if spec.dtype.startswith("float") else "int64"
        leaf = schema.image(spec) if is_png(meta.env, key) else schema.tensor(tuple(spec.shape), dtype)
        observation[short_name(meta.env, key)] = leaf
    step = {
        "observation": schema.group(observation),
        "action": schema.tensor((meta.env.action.dim,), "float32"),
        "reward": schema.tensor((), "float32"),
        "discount": schema.tensor((), "float32"),
        "language_instruction": schema.text(),
    }
    for name in ("is_first", "is_last", "is_terminal", "intervention"):
        step[name] = schema.tensor((), "bool")
    metadata = schema.group({"success": schema.tensor((), "int64")})
    return schema.group({"steps": schema.steps(schema.group(step)), "episode_metadata": metadata})


def _info(name: str, size: int, lengths: list[int]) -> dict[str, Any]:
    split = {
        "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        "name": "train",
        "numBytes": str(size),
        "shardLengths": [str(length) for length in lengths],
    }
    return {"fileFormat": "tfrecord", "name": name, "splits": [split], "version": schema.VERSION}


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2, allow_nan=False))
