"""Import of zarr v2 replay buffers (`data/*`, `meta/episode_ends`), the format of Diffusion Policy and
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Int64, Shaped
from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.atomic_dataset import atomic_dataset
from robo_rl.data.episodes.schema import Codec
from robo_rl.data.episodes.whole_numbers import require_in_range
from robo_rl.data.formats.contract import ForeignSpec, extremes, inferred, require_names, require_obs
from robo_rl.data.formats.replay_buffer import ExportedRecord
from robo_rl.data.formats.rows import EpisodeRows, matching, write_rows
from robo_rl.data.plausible import check_action, check_finite
from robo_rl.data.zarr_buffer import EPISODE_ENDS, ZarrBuffer

_MEND = "Correct it in the buffer, or name an array in keys= that has the units of the environment."
STEP_KEYS = ("action", "reward", "terminated")


def _only(array: Shaped[ndarray, "n ..."]) -> Shaped[ndarray, "n ..."]:
    return array


@dataclass(frozen=True)
class ReplayBufferSource:
    """Arrays of the buffer for one key, and the function that computes the key from them for one episode."""

    arrays: tuple[str, ...]
    convert: Callable[..., Shaped[ndarray, "n ..."]] = _only


KeyMap = Mapping[str, str | ReplayBufferSource]


def import_replay_buffer(
    source: str | Path,
    out: str | Path,
    env: EnvSpec,
    keys: KeyMap,
    *,
    image_codec: Codec = "raw",
    limit: int | None = None,
    task: str = "",
    notes: list[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write the buffer's episodes as a new dataset; returns their number.

    `keys` maps every observation of `env`, "action", and optionally "reward" and "terminated" to an array.
    Missing rewards are 0. A buffer has no observation after the last action, no stamps and no success labels;
    neither has the dataset. An export of ours also holds labels, interventions and the last observation; they
    stay. Float images must hold 0-255 and become uint8.

    The dataset appears under `out` when it is complete; an interrupted import leaves nothing. limit: import
    only the first episodes. notes: gets a sentence on labels that were not used. progress: called with
    (episodes done, episodes).

    Raises DataError if `source` is no replay buffer, lacks an array or does not fit `env`, or if `out`
    exists.
    """
    buffer = ZarrBuffer(source)
    mapping = _checked(keys, env, buffer)
    ends = _episode_ends(buffer, mapping)
    plain = {key: each.arrays[0] for key, each in mapping.items() if each.convert is _only}
    named = {key: plain.get(key, "") for key in env.obs}
    record, ends = ExportedRecord(buffer, len(ends), named), ends[:limit]
    info = {"source": Path(source).name}
    with atomic_dataset(out, env, image_codec=image_codec, stamps=(), info=info) as writer:
        for episode, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            rows = slice(int(start), int(end))
            found = record.completed(_episode(writer.spec, buffer, mapping, rows), episode, rows, task)
            write_rows(writer, found)
            if progress is not None:
                progress(episode + 1, len(ends))
    if notes is not None:
        notes += record.notes()
    return len(ends)


def inferred_contract(
    source: str | Path, keys: Mapping[str, str], rate_hz: float, notes: list[str] | None = None
) -> EnvSpec:
    """Contract "robot/<name>" of a buffer: its arrays, and limits a little wider than its actions. notes:
    gets a sentence on these limits.

    Raises DataError if `source` is no buffer, lacks an array, or no contract can describe it.
    """
    buffer = ZarrBuffer(source)
    if "action" not in keys:
        raise DataError("keys names no array of actions. Add action:data/<array>.")
    mapping = _sources(keys)
    _require_arrays(mapping, buffer)
    ends = _episode_ends(buffer, mapping)
    first = {key: buffer.read(name, slice(0, 1)) for key, name in keys.items() if key not in STEP_KEYS}
    require_obs(first, source)
    obs = {
        key: (row.shape[1:], "uint8" if key.startswith("image.") else row.dtype.name)
        for key, row in first.items()
    }
    action = buffer.read(keys["action"], slice(0, int(ends[-1]))).astype(np.float32)
    if action.ndim != 2:
        raise DataError(f"{source}/{keys['action']} has the shape {action.shape}; actions need (n, a).")
    longest = int(np.diff(ends, prepend=0).max())
    return inferred(ForeignSpec(Path(source).stem, obs, *extremes([action]), longest, rate_hz), notes)


def longest_episode(source: str | Path) -> int:
    """Frames of the longest episode of a buffer. Raises DataError if `source` is no buffer."""
    return int(np.diff(_episode_ends(ZarrBuffer(source), {}), prepend=0).max())


def array_shape(source: str | Path, name: str) -> tuple[int, ...]:
    """Shape of the array of a buffer that holds the state, e.g. "data/state". Raises DataError without it."""
    buffer = ZarrBuffer(source)
    if not name:
        raise DataError(
            f"keys names no array of the state. Add state:data/<array>; {source} has "
            f"{', '.join(buffer.names)}."
        )
    require_names(source, [name], buffer.names, "array")
    return buffer.shape(name)


def _episode(
    env: EnvSpec, buffer: ZarrBuffer, mapping: Mapping[str, ReplayBufferSource], rows: slice
) -> EpisodeRows:
    """Arrays of one episode in the types of the contract."""
    arrays = {
        key: source.convert(*(buffer.read(name, rows) for name in source.arrays))
        for key, source in mapping.items()
    }
    for key, spec in env.obs.items():
        if spec.dtype == "uint8":
            arrays[key] = _image(key, arrays[key])
        else:
            require_in_range(key, arrays[key], spec.dtype)
            arrays[key] = arrays[key].astype(spec.dtype)
    action = arrays["action"].astype(np.float32)
    where = f"The episode that starts at row {rows.start} of the buffer"
    frames = rows.stop - rows.start
    zeros = np.zeros(frames, dtype=bool)
    reward, terminated = (_per_frame(arrays.get(key, zeros), key, where, frames) for key in STEP_KEYS[1:])
    obs = {key: arrays[key] for key in env.obs}
    found = matching(env, EpisodeRows(obs, action, reward.astype(np.float32), terminated > 0, zeros), where)
    for key in (*env.obs, "action"):
        check_finite(arrays[key], f"{where}: '{key}'", _MEND)
    check_action(action, env.action, where, _MEND)
    return found


def _per_frame(values: Shaped[ndarray, "n ..."], key: str, where: str, frames: int) -> Shaped[ndarray, " n"]:
    """`values` as one number per frame. Raises DataError for another shape."""
    if values.size != frames:
        raise DataError(
            f"{where}: '{key}' has the shape {list(values.shape[1:])} per frame, expected one number. Name "
            "another array in keys=, or leave it out."
        )
    return values.reshape(frames)


def _image(key: str, images: Shaped[ndarray, "n h w 3"]) -> Shaped[ndarray, "n h w 3"]:
    """Images as uint8; float images must hold 0-255. Raises DataError for another range."""
    if images.dtype == np.uint8:
        return images
    low, high = float(images.min()), float(images.max())
    if not (low >= 0.0 and high <= 255.0) or 0.0 < high <= 1.0:
        raise DataError(
            f"Images of '{key}' hold {low:g} to {high:g}, 0 to 255 was expected. "
            "Scale them in the buffer, or, in Python, in `convert` of a ReplayBufferSource."
        )
    return np.asarray(np.rint(images), dtype=np.uint8)


def _checked(keys: KeyMap, env: EnvSpec, buffer: ZarrBuffer) -> dict[str, ReplayBufferSource]:
    mapping = _sources(keys)
    if missing := (env.obs.keys() | {"action"}) - mapping.keys():
        raise DataError(
            f"keys has no entry for {sorted(missing)}, which '{env.name}' needs. Add pairs such as "
            f"{min(missing)}:data/<array>."
        )
    if unknown := mapping.keys() - env.obs.keys() - set(STEP_KEYS):
        raise DataError(f"keys names {sorted(unknown)}, but '{env.name}' has {sorted(env.obs)}.")
    _require_arrays(mapping, buffer)
    return mapping


def _sources(keys: KeyMap) -> dict[str, ReplayBufferSource]:
    return {
        key: ReplayBufferSource((value,)) if isinstance(value, str) else value for key, value in keys.items()
    }


def _require_arrays(mapping: Mapping[str, ReplayBufferSource], buffer: ZarrBuffer) -> None:
    """Raise DataError for an array that the buffer lacks."""
    for source in mapping.values():
        require_names(buffer.path, source.arrays, buffer.names, "array")


def _episode_ends(
    buffer: ZarrBuffer, mapping: Mapping[str, ReplayBufferSource]
) -> Int64[ndarray, " episodes"]:
    ends = buffer.episode_ends()
    rows = {name: (buffer.shape(name) or (0,))[0] for source in mapping.values() for name in source.arrays}
    if len(ends) == 0 or ends[0] <= 0 or (np.diff(ends) <= 0).any():
        raise DataError(
            f"{buffer.path}/{EPISODE_ENDS} must increase strictly from above 0, found {ends[:5].tolist()}..."
        )
    if short := {name: n for name, n in rows.items() if n < ends[-1]}:
        held = ", ".join(f"{name} has {n}" for name, n in short.items())
        raise DataError(
            f"{buffer.path} is truncated: its episodes end at row {ends[-1]}, but {held}. Copy the buffer "
            "again, or name another array in keys=."
        )
    return ends
