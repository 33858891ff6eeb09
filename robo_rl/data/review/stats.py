"""Statistics of a dataset for `robo-rl data stats`: ranges of every number, use of the action limits,
images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Float64
from robo_rl.core.text.commands import command
from robo_rl.core.text.named_numbers import parse_unit
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.recover import empty_sentence
from robo_rl.data.windows import in_memory

IMAGES = 200  # images of a camera of which statistics are taken
AT_LIMIT = 0.01  # distance from a limit, in fractions of the range, that counts as reaching it
LEVELS = {"p1": 0.01, "p50": 0.5, "p99": 0.99}


def dataset_stats(path: str | Path) -> dict[str, Any]:
    """Statistics as JSON values. Raises DataError if `path` is no dataset, is empty or damaged.

    numbers: key -> one dict per dimension with name, min, p1, p50, p99, max, mean, std. at_limit:
    fraction of frames in which each dimension of the action is at a limit. images: mean and std per
    colour, of a sample. lengths_s. not_finite: key -> rows with a value that is not finite, of which no
    statistics are taken: their number as rows, and episode and row of the first.
    """
    store = EpisodeStore(path)
    if not len(store):
        raise DataError(empty_sentence(path))
    env = store.spec
    numbers: dict[str, list[dict[str, Any]]] = {}
    broken: dict[str, dict[str, int]] = {}
    for key, spec in env.obs.items():
        if spec.dtype.startswith("float") and in_memory(store.meta, key) and len(spec.shape) <= 1:
            numbers[key] = _dimensions(_finite_rows(store, key, broken), spec.unit)
    action = _finite_rows(store, "action", broken)
    numbers["action"] = _dimensions(action, env.action.unit)
    low, high = np.array(env.action.low), np.array(env.action.high)
    slack = AT_LIMIT * (high - low)
    seconds = np.array([episode.frames for episode in store]) / env.control_hz
    labels = [episode.success for episode in store]
    rewards = [episode.reward for episode in store]
    _finite_rows(store, "reward", broken)
    return {
        "path": str(path),
        "episodes": len(store),
        "frames": sum(episode.frames for episode in store),
        "numbers": numbers,
        "at_limit": ((action <= low + slack) | (action >= high - slack)).mean(axis=0).tolist(),
        "images": {key: _image(store, key) for key in env.obs if key.startswith("image.")},
        "lengths_s": {k: float(np.quantile(seconds, q)) for k, q in {"min": 0, **LEVELS, "max": 1}.items()},
        "success": {str(value).lower(): labels.count(value) for value in (True, False, None)},
        "intervention_fraction": float(np.concatenate([e.intervention for e in store]).mean()),
        "return_mean": float(np.mean([np.sum(each, where=np.isfinite(each)) for each in rewards])),
        "not_finite": broken,
    }


def _finite_rows(
    store: EpisodeStore, name: str, broken: dict[str, dict[str, int]]
) -> Float64[ndarray, "n d"]:
    """Rows of an array in all episodes without those that are not finite, which are noted in `broken`.

    Raises DataError if none is finite.
    """
    arrays = [episode.array(name) for episode in store]
    rows = np.concatenate(arrays).astype(np.float64).reshape(sum(map(len, arrays)), -1)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        ends = np.cumsum([len(each) for each in arrays])
        first = int(finite.argmin())
        at = int(np.searchsorted(ends, first, side="right"))
        row = first - int(ends[at]) + len(arrays[at])
        broken[name] = {"rows": int((~finite).sum()), "episode": store[at].number, "row": row}
    if not finite.any():
        raise DataError(
            f"{store.path} has no finite row of '{name}'. See {command('data validate', path=store.path)}."
        )
    found: Float64[ndarray, "n d"] = rows[finite]
    return found


def _dimensions(values: Float64[ndarray, "n d"], unit: str) -> list[dict[str, Any]]:
    """Statistics of every column."""
    names = number_names(unit, values.shape[1])
    found = []
    for name, column in zip(names, values.T, strict=True):
        levels = [0.0, *LEVELS.values(), 1.0]
        quantiles = np.quantile(column, levels).tolist()
        spread = dict(zip(("min", *LEVELS, "max"), quantiles, strict=True))
        found.append({"name": name, **spread, "mean": float(column.mean()), "std": float(column.std())})
    return found


def number_names(unit: str, count: int) -> list[str]:
    """Names of the numbers of an array with their unit, e.g. "elbow [rad]"; else their positions."""
    named = [f"{name} [{segment.unit}]" for segment in parse_unit(unit) for name in segment.names]
    return named if len(named) == count else [str(i) for i in range(count)]


def _image(store: EpisodeStore, key: str) -> dict[str, list[float]]:
    """Mean and standard deviation per colour, in [0, 1]."""
    each = max(1, IMAGES // len(store))
    chosen = []
    for episode in list(store)[:IMAGES]:
        rows = np.linspace(0, episode.frames - 1, min(each, episode.frames)).astype(int).tolist()
        chosen += [episode.obs(key, row, row + 1)[0].reshape(-1, 3) for row in rows]
    pixels = np.concatenate(chosen) / 255.0
    return {"mean": pixels.mean(axis=0).tolist(), "std": pixels.std(axis=0).tolist()}
