"""Contracts of foreign datasets: taken from the export's own, a given one, or inferred from the data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Bool, Float32
from robo_rl.core.spec import ROBOT_SUITE, ActionSpec, ArraySpec, EnvSpec, image_fault
from robo_rl.core.text.counts import counted
from robo_rl.core.text.nearest import did_you_mean

MARGIN = 0.05  # fraction of the range of the actions by which inferred limits are wider
_LARGEST_BYTES = 1 << 28  # of one observation: 8192 x 8192 pixels
_TYPES = {"bool": "uint8", "int16": "int32", "uint32": "int64", "int8": "int32"}
_KEPT = ("uint8", "uint16", "int32", "int64", "float16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class ForeignSpec:
    """What a foreign dataset says about itself. obs: key -> (shape, dtype). low, high: extremes of
    actions. rate_hz: None where it is not stated.
    """

    name: str
    obs: dict[str, tuple[tuple[int, ...], str]]
    low: Float32[ndarray, " a"]
    high: Float32[ndarray, " a"]
    longest: int
    rate_hz: float | None


def inferred(foreign: ForeignSpec, notes: list[str] | None = None) -> EnvSpec:
    """Contract "robot/<name>" with limits a little wider than the actions. notes: gets a sentence on them.
    Raises DataError for an unknown rate, and for data that no contract can describe.
    """
    if foreign.rate_hz is None:
        raise DataError(unknown_rate(foreign.name))
    low, high = foreign.low.astype(np.float64), foreign.high.astype(np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise DataError(f"The actions of {foreign.name} are not finite. Correct them in the source.")
    margin = np.where(high > low, MARGIN * (high - low), 1.0)
    obs = {key: _array(key, shape, dtype) for key, (shape, dtype) in foreign.obs.items()}
    for key, spec in obs.items():
        if fault := image_fault(key, spec):
            raise DataError(f"{fault} Leave this key out, or give it another name in keys=.")
    if notes is not None:
        notes.append(
            f"The limits were inferred: they are {100 * MARGIN:g} % wider than the actions of all episodes "
            "of the source."
        )
    name = re.sub(r"[^A-Za-z0-9_.\-]+", "_", foreign.name).strip("_") or "imported"
    return EnvSpec(
        f"{ROBOT_SUITE}/{name}",
        obs,
        ActionSpec(tuple((low - margin).tolist()), tuple((high + margin).tolist())),
        max_episode_steps=max(1, foreign.longest),
        control_hz=foreign.rate_hz,
    )


def unknown_rate(source: object) -> str:
    """Sentence on a source that states no rate."""
    return (
        f"{source} states no rate, and a policy must act at the rate of its data. Give "
        "rate_hz=<frames per second>, or env= of the task in which it was recorded."
    )


def without_unknown_end(
    done: Bool[ndarray, " n"], success: bool | None, truncated: Bool[ndarray, " n"] | None = None
) -> Bool[ndarray, " n"]:
    """Flags of `terminated` for those of `done`, which is also true where an episode ran out of time.

    At the last frame, a done is an ending of the task if the episode succeeded there, or if `truncated` is
    stated and false; otherwise it is unknown which of both it is, and false.
    """
    terminated = done if truncated is None else done & ~truncated
    if truncated is None and not success:
        terminated = terminated.copy()
        terminated[-1:] = False
    return terminated


def unknown_ends(episodes: int) -> str:
    """Sentence on episodes whose last frame `without_unknown_end` has changed."""
    return (
        f"{counted(episodes, 'episode')} ended by a flag of done, without one of success or of a time-out. "
        "Their last frames are stored as not terminated."
    )


def stored_dtype(dtype: str) -> str | None:
    """Type in which the store keeps values of a foreign type; None if it has none."""
    return dtype if dtype in _KEPT else _TYPES.get(dtype)


def safe_key(name: str) -> str:
    """Observation key for a foreign name: letters, digits, '_', '-' and '.', beginning with a letter."""
    key = re.sub(r"[^A-Za-z0-9_.\-]+", "_", name)
    return key if key[:1].isalpha() else f"obs_{key}"


def extremes(
    actions: Iterable[Float32[ndarray, "n a"]],
) -> tuple[Float32[ndarray, " a"], Float32[ndarray, " a"]]:
    """Smallest and largest action. Raises DataError without any."""
    lows, highs = [], []
    for each in actions:
        if len(each):
            lows.append(each.min(axis=0))
            highs.append(each.max(axis=0))
    if not lows:
        raise DataError("The source holds no actions. Give a dataset with at least one frame.")
    return np.min(lows, axis=0), np.max(highs, axis=0)


def require_obs(obs: Mapping[str, object], source: object) -> None:
    """Raise DataError for a dataset without observations."""
    if not obs:
        raise DataError(f"{source} has no observations that can be imported. Give another source=.")


def require_names(source: object, names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise DataError for the first of `names`, which keys= gave, that the source does not have. what: they
    are, e.g. "array".
    """
    there = sorted(known)
    for name in sorted(set(names) - set(there)):
        known_words = f"It has {', '.join(there)}. Name one of these in keys=." if there else "It has none."
        raise DataError(f"{source} has no {what} '{name}'.{did_you_mean(name, there)} {known_words}")


def _array(key: str, shape: tuple[int, ...], dtype: str) -> ArraySpec:
    stored = stored_dtype(dtype)
    if stored is None:
        raise DataError(f"'{key}' has type {dtype}, which the store does not know. Convert it in the source.")
    if len(shape) > 7 or any(size < 1 for size in shape) or _bytes(shape, stored) > _LARGEST_BYTES:
        raise DataError(f"'{key}' has rows of shape {list(shape)}, which is no observation. Leave it out.")
    return ArraySpec(shape, stored)


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    size = np.dtype(dtype).itemsize
    for each in shape:
        size *= int(each)
    return size
