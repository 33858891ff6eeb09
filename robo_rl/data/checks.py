"""Checks of one episode for `validate`: stored bytes, types, shapes and plausible values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import read_regular
from robo_rl.core.shapes import Bool, Shaped
from robo_rl.data import jpeg
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.schema import DAMAGED, JPEG_ENDS, NO_STAMP, STAMPS, ZARR_JSON, ArrayMeta, Column
from robo_rl.data.episodes.shard import (
    file_crc32c,
    index_bytes,
    layout,
    payload_bytes,
    row_bytes,
    shard_name,
    zarr_array_json,
    zarr_group_json,
)

RESTORE = "Restore the episode from a copy, or delete its directory; the others keep their numbers."
RE_RECORD = "Inspect the episode; delete it if the sensor or driver was faulty."
LIMIT_TOLERANCE = 1e-4  # fraction of an action's range; float32 rounding at the limit stays below it
RATE_TOLERANCE = 0.05  # fraction of the control rate
FROZEN_S = 0.5  # a camera that repeats an image for longer is reported
LEAST_RANGE = 1e-4  # of a number that moves, in its unit, as for `Normalizer.fit`
LEAST_STEP = 1e-4  # of a number that moves, as a fraction of its range in the episode
BLOCK_ROWS_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class Fault:
    """One finding. episode: None for the entire dataset. A warning does not make the dataset invalid."""

    episode: int | None
    fault: str
    what_to_do: str
    kind: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        where = "dataset" if self.episode is None else f"episode {self.episode:06d}"
        return f"{self.severity}: {where}: {self.fault} {self.what_to_do}"


def episode_faults(episode: Episode) -> Iterator[Fault]:
    """All faults of one episode whose episode.json was readable."""
    number, meta = episode.number, episode.meta
    if meta.frames <= 0:
        yield Fault(number, f"It has {meta.frames} frames.", "Delete its directory.", "zero_length")
        return
    if DAMAGED in meta.info:
        yield Fault(number, f"It was recovered, but {meta.info[DAMAGED]}.", RE_RECORD, "damaged")
    if not meta.complete:
        text = "It was interrupted and salvaged to its last complete frame."
        label = {None: "no success label", True: "the label success", False: "the label failure"}[
            meta.success
        ]
        advice = f"It has {label}. Keep it if its motion is good; train leaves it out unless learn_from=all."
        yield Fault(number, text, advice, "incomplete", "warning")
    sound: set[str] = set()
    for column in episode.dataset.columns():
        found = list(_array_faults(episode, column))
        yield from found
        if not found:
            sound.add(column.name)
    yield from _unknown_columns(episode)
    if len(sound) == len(episode.dataset.columns()):  # otherwise they are known to differ
        yield from _group_faults(episode)
    yield from _content_faults(episode, sound)


def _array_faults(episode: Episode, column: Column) -> Iterator[Fault]:
    number, name = episode.number, column.name
    array = episode.meta.arrays.get(name)
    if array is None or not (episode.path / name).is_dir():
        yield Fault(number, f"The array '{name}' is missing.", RESTORE, "missing_array")
        return
    schema = list(schema_faults(episode, column, array))
    yield from schema
    if not schema:
        yield from _zarr_json_faults(number, episode.path / name, name, array)
        yield from _shard_faults(number, episode.path / name, name, array)


def schema_faults(episode: Episode, column: Column, array: ArrayMeta) -> Iterator[Fault]:
    """Differences between an array and its column in the dataset."""
    number, name = episode.number, column.name
    if array.dtype != column.dtype:
        text = f"'{name}' is {array.dtype}, the dataset stores {column.dtype}."
        yield Fault(number, text, RESTORE, "wrong_dtype")
    if array.shape[1:] != column.row_shape:
        found, stored = list(array.shape[1:]), list(column.row_shape)
        text = f"Rows of '{name}' have shape {found}, the dataset stores {stored}."
        yield Fault(number, text, RESTORE, "wrong_shape")
    rows = array.shape[0] if column.role == "blob" else episode.meta.rows(column.role)
    if not array.shape or array.shape[0] != rows:
        text = f"'{name}' has {array.shape[0]} rows, {rows} belong to {episode.frames} frames."
        yield Fault(number, text, RESTORE, "wrong_length")


def _zarr_json_faults(number: int, folder: Path, name: str, array: ArrayMeta) -> Iterator[Fault]:
    if (problem := _differs(folder / ZARR_JSON, zarr_array_json(array))) is not None:
        text = f"zarr.json of '{name}' {problem}."
        yield Fault(number, text, "Restore it; memory maps still read the data.", "broken_zarr_json")


def _differs(path: Path, expected: dict[str, Any]) -> str | None:
    try:
        found = json.loads(read_regular(path))
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError, RecursionError, DataError) as error:
        return f"cannot be read ({error})"
    if not isinstance(found, dict):
        return "holds no object"
    wrong = sorted(key for key in expected if found.get(key) != expected[key])
    return f"does not describe the stored bytes: {', '.join(wrong)} differ" if wrong else None


def _shard_faults(number: int, folder: Path, name: str, array: ArrayMeta) -> Iterator[Fault]:
    path = folder / shard_name(len(array.shape))
    if not path.is_file():
        yield Fault(number, f"The data of '{name}' are missing ({path.name}).", RESTORE, "missing_shard")
        return
    size, payload, index = path.stat().st_size, payload_bytes(array), index_bytes(array)
    _, chunks, chunk_bytes = layout(array)
    if size < payload:
        whole = size // row_bytes(array.dtype, array.shape[1:])
        text = f"'{name}' is truncated: {whole} of {array.shape[0]} rows are there."
        yield Fault(number, text, RESTORE, "truncated_shard")
        return
    with path.open("rb") as file:
        file.seek(chunks * chunk_bytes)
        stored = file.read()
    if stored != index:
        text = f"The zarr index after the data of '{name}' is broken."
        yield Fault(number, text, "Restore it; memory maps still read the data.", "bad_index")
    if file_crc32c(path, payload) != array.crc32c:
        text = f"The checksum of '{name}' differs: its bytes changed after the commit."
        yield Fault(number, text, RESTORE, "bad_checksum")


def _unknown_columns(episode: Episode) -> Iterator[Fault]:
    known = {column.name for column in episode.dataset.columns()}
    for path in sorted(episode.path.iterdir()):
        if path.is_dir() and path.name not in known:
            text = f"There is an array '{path.name}' that the dataset does not declare."
            yield Fault(
                episode.number, text, "Delete or ignore it; it is not read.", "unknown_array", "warning"
            )


def _group_faults(episode: Episode) -> Iterator[Fault]:
    if (problem := _differs(episode.path / ZARR_JSON, zarr_group_json(episode.meta.arrays))) is not None:
        text = f"zarr.json of the episode {problem}."
        yield Fault(episode.number, text, "Restore it; memory maps still read the data.", "broken_zarr_json")


def _content_faults(episode: Episode, sound: set[str]) -> Iterator[Fault]:
    for column in episode.dataset.columns():
        if column.name in sound and column.dtype.startswith("float"):
            yield from _finite(episode, column.name)
    if "action" in sound:
        yield from _limits(episode)
    if STAMPS in sound:
        yield from _stamps(episode)
    moving = _moving(episode, sound)
    yield from _at_rest(episode, moving)
    yield from _frozen_cameras(episode, sound, moving)
    if JPEG_ENDS in sound:
        for key in episode.dataset.jpeg_keys:
            if key in sound:
                yield from _jpeg(episode, key)


def _finite(episode: Episode, name: str) -> Iterator[Fault]:
    array = episode.array(name)
    step = max(1, BLOCK_ROWS_BYTES // max(1, row_bytes(str(array.dtype), array.shape[1:])))
    bad: list[int] = []
    for start in range(0, len(array), step):
        block = (
            np.isfinite(array[start : start + step]).reshape(min(step, len(array) - start), -1).all(axis=1)
        )
        bad += (start + np.flatnonzero(~block)).tolist()
    if bad:
        text = f"'{name}' is not finite in {len(bad)} rows, first in row {bad[0]}."
        yield Fault(episode.number, text, RE_RECORD, "non_finite")


def _limits(episode: Episode) -> Iterator[Fault]:
    spec, action = episode.dataset.env.action, episode.action
    low, high = np.array(spec.low), np.array(spec.high)
    slack = LIMIT_TOLERANCE * (high - low)
    outside = (action < low - slack) | (action > high + slack)
    if outside.any():
        frames = np.flatnonzero(outside.any(axis=1))
        text = (
            f"Actions exceed the limits in {len(frames)} frames, first in frame {frames[0]}, "
            f"dimensions {np.flatnonzero(outside.any(axis=0)).tolist()}."
        )
        yield Fault(
            episode.number,
            text,
            "Record the executed action, or correct the limits.",
            "action_outside_limits",
        )


def _stamps(episode: Episode) -> Iterator[Fault]:
    stamps = episode.stamps()
    for name, column in stamps.items():
        known = column[column != NO_STAMP]
        if (back := np.flatnonzero(np.diff(known) < 0)).size:
            text = f"'{name}' decreases {back.size} times, first after frame {int(back[0])}."
            yield Fault(
                episode.number,
                text,
                "Stamp with a monotonic clock, one clock per column.",
                "stamps_backwards",
            )
        yield from _rate(episode, name, known)
    capture, receive = stamps.get("t_capture_ns"), stamps.get("t_receive_ns")
    if capture is not None and receive is not None:
        early = (receive < capture) & (receive != NO_STAMP) & (capture != NO_STAMP)
        if early.any():
            text = (
                f"{int(early.sum())} frames were received before they were captured, "
                f"first frame {int(early.argmax())}."
            )
            yield Fault(episode.number, text, "Stamp both with the same clock.", "stamps_order")


def _rate(episode: Episode, name: str, known: Shaped[ndarray, " k"]) -> Iterator[Fault]:
    """Compare the mean rate of an episode with the declared one, on which velocities depend."""
    if name != "t_command_ns" or len(known) < 10 or known[-1] <= known[0]:
        return
    declared_hz = episode.dataset.env.control_hz
    measured_hz = (len(known) - 1) * 1e9 / float(known[-1] - known[0])
    if abs(measured_hz / declared_hz - 1.0) > RATE_TOLERANCE:
        text = f"Commands ran at {measured_hz:.2f} Hz, the dataset declares {declared_hz:g} Hz."
        yield Fault(
            episode.number, text, "Correct control_hz, or record on a faster machine.", "rate", "warning"
        )


def _moving(episode: Episode, sound: set[str]) -> Bool[ndarray, " m"] | None:
    """True where a number of the observation changes until the next row; None without such numbers.

    A simulated arm at rest still changes by rounding errors. Numbers with a range below `LEAST_RANGE` are
    therefore constant, and steps below `LEAST_STEP` of the range are none.
    """
    n, moving = episode.obs_rows, None
    for key, spec in episode.dataset.env.obs.items():
        if key in sound and spec.dtype.startswith("float") and len(spec.shape) <= 1:
            rows = episode.array(key).reshape(n, -1).astype(np.float64)
            rows[~np.isfinite(rows)] = 0.0
            span = rows.max(axis=0) - rows.min(axis=0)
            steps = np.abs(rows[1:] - rows[:-1]) > LEAST_STEP * span
            changed = (steps & (span >= LEAST_RANGE)).any(axis=1)
            moving = changed if moving is None else moving | changed
    return moving


def _at_rest(episode: Episode, moving: Bool[ndarray, " m"] | None) -> Iterator[Fault]:
    """A recording of `FROZEN_S` and longer in which nothing moves."""
    if moving is not None and len(moving) >= _least_frames(episode) and not moving.any():
        text = (
            f"The robot did not move: no number of its observations changes by {LEAST_RANGE:g} or more in "
            f"{episode.frames} frames."
        )
        yield Fault(episode.number, text, "Delete it if nobody drove the robot.", "no_motion", "warning")


def _least_frames(episode: Episode) -> int:
    """Frames for which an image, or the robot, must stay the same to be reported."""
    return max(5, round(FROZEN_S * episode.dataset.env.control_hz))


def _frozen_cameras(episode: Episode, sound: set[str], moving: Bool[ndarray, " m"] | None) -> Iterator[Fault]:
    """Cameras that repeat an image for `FROZEN_S` and longer, while the numbers of the observation change."""
    if moving is None or not moving.any():
        return
    least = _least_frames(episode)
    for key, spec in episode.dataset.env.obs.items():
        readable = key in sound and (JPEG_ENDS in sound or key not in episode.dataset.jpeg_keys)
        if not readable or spec.dtype != "uint8":
            continue
        repeats = _repeats(episode, key)
        start, length = _longest_run(repeats & moving) if len(repeats) == len(moving) else (0, 0)
        if length >= least:
            text = f"'{key}' shows one image in frames {start} to {start + length}, while the robot moves."
            yield Fault(episode.number, text, RE_RECORD, "frozen_camera", "warning")


def _repeats(episode: Episode, key: str) -> Bool[ndarray, " m"]:
    """True where an image equals the one before it."""
    if key in episode.dataset.jpeg_keys:
        try:
            blob, ends = episode.array(key), episode.jpeg_ends(key)
        except DataError:
            return np.zeros(0, dtype=bool)
        data = [blob[start:stop] for start, stop in pairwise(ends)]
        same = [np.array_equal(one, two) for one, two in pairwise(data)]
        return np.array(same, dtype=bool)
    rows = episode.array(key)
    return np.array([np.array_equal(one, two) for one, two in pairwise(rows)], dtype=bool)


def _longest_run(flags: Bool[ndarray, " m"]) -> tuple[int, int]:
    """Begin and length of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    if not len(edges):
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    return int(edges[::2][lengths.argmax()]), int(lengths.max())


def _jpeg(episode: Episode, key: str) -> Iterator[Fault]:
    blob = episode.array(key)
    try:
        ends = episode.jpeg_ends(key)
    except DataError:
        ends = np.zeros(1, dtype=np.int64)
    if ends[-1] != len(blob):
        text = f"The image offsets of '{key}' do not fit its {len(blob)} bytes."
        yield Fault(episode.number, text, RESTORE, "broken_jpeg")
        return
    image = np.empty(episode.dataset.env.obs[key].shape, dtype=np.uint8)
    for row in sorted({0, len(ends) - 2}):  # the checksum covers the rest
        try:
            jpeg.decode(blob[ends[row] : ends[row + 1]], image)
        except DataError as error:
            yield Fault(episode.number, f"Image {row} of '{key}': {error}", RE_RECORD, "broken_jpeg")
