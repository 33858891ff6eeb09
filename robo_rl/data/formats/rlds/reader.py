"""Import of RLDS datasets: exports of `writer.py` exactly, others with a given or inferred contract."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import read_json
from robo_rl.core.shapes import Float32, Shaped
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.atomic_dataset import atomic_dataset
from robo_rl.data.episodes.schema import Codec, DatasetMeta, EpisodeMeta
from robo_rl.data.formats.contract import (
    ForeignSpec,
    extremes,
    inferred,
    require_names,
    require_obs,
    safe_key,
)
from robo_rl.data.formats.exported_labels import ExportedLabels, labelled
from robo_rl.data.formats.pictures import decode_picture
from robo_rl.data.formats.rlds.records import Value, decode_example, read_records
from robo_rl.data.formats.rlds.schema import FEATURES, RldsFeature, load_features
from robo_rl.data.formats.rlds.writer import OWN, is_exact
from robo_rl.data.formats.rows import (
    SIDECAR,
    EpisodeRows,
    ExportedEpisode,
    from_sidecar,
    matching,
    short_name,
    verified,
    write_rows,
)

TRAIN = "train"  # name of the split for training
SPLIT = re.compile(r"-([^-]+)\.tfrecord")
_OWN_ENDS = f"{SIDECAR}/terminated"  # one flag per action, in our exports
_OBS, _TASKS = "observation/", ("language_instruction", "observation/natural_language_instruction")
Progress = Callable[[int, int], None] | None


def folder_of(source: Path) -> Path | None:
    """The folder with features.json: `source`, or that of its newest version; None for another folder."""
    if not source.is_dir():
        return None
    found = [path.parent for path in (source / FEATURES, *source.glob(f"*/{FEATURES}")) if path.is_file()]
    return max(found, key=lambda folder: _version(folder.name), default=None)


def _version(name: str) -> tuple[list[int], str]:
    """Order of version folders, 1.9.0 before 1.10.0; a folder with another name comes before all of them."""
    parts = name.split(".")
    return [int(part) for part in parts] if all(map(str.isdecimal, parts)) else [], name


def rlds_splits(source: str | Path) -> list[str]:
    """Names of the splits whose shards are in the folder. Raises DataError without any."""
    return sorted(_shards(_open(source)[0]))


def describe_rlds(
    source: str | Path, keys: Mapping[str, str] | None = None, split: str = TRAIN
) -> ForeignSpec:
    """Shapes and extremes of a split. The rate is that of our export; the format states none."""
    folder, features = _open(source)
    names = _names(features, keys, source)
    actions = [
        _rows(example, "action", features, None, str(source)).astype(np.float32)
        for example in _examples(folder, split)
    ]
    low, high = extremes(actions)
    obs = {key: (features[name].shape, features[name].dtype) for key, name in names.items()}
    own = _exported(folder)
    rate_hz = None if own is None else own[0].env.control_hz
    return ForeignSpec(folder.parent.name, obs, low, high, max(map(len, actions)), rate_hz)


def import_rlds(
    source: str | Path,
    out: str | Path,
    *,
    env: EnvSpec | None = None,
    keys: Mapping[str, str] | None = None,
    task: str = "",
    image_codec: Codec | None = None,
    limit: int | None = None,
    split: str = TRAIN,
    notes: list[str] | None = None,
    progress: Progress = None,
) -> int:
    """Write the episodes of one split of an RLDS dataset as a dataset; returns their number.

    A folder that `export_rlds` wrote is imported exactly. For others the contract is `env`, or
    inferred. keys: observation -> name such as "observation/state"; None: all numbers and images. Each
    step becomes a frame, except for a last step that only holds the final observation (`_final_steps`).
    notes: gets a sentence on such steps. Raises DataError for another format, a split that is not there or a
    damaged file.
    """
    folder, features = _open(source)
    own = _exported(folder)
    known: list[ExportedEpisode] = []
    if own is not None and env is None and not keys:
        meta, known = own
        names = {key: _OBS + short_name(meta.env, key) for key in meta.env.obs}
    else:
        names = _names(features, keys, source)
        meta = DatasetMeta(env or inferred(describe_rlds(source, keys, split), notes), stamps=())
    info = {**meta.info, "source": Path(source).name}
    count, total, finals = 0, len(known) or len(list(_examples(folder, split))), 0
    labels = ExportedLabels(own[1] if own is not None and split == TRAIN else [], total)
    with atomic_dataset(
        out, meta.env, image_codec=image_codec or "raw", stamps=meta.stamps, info=info
    ) as writer:
        for count, example in enumerate(_examples(folder, split), 1):
            where = f"Episode {count - 1} of {source}"
            if known and count > len(known):
                raise DataError(f"{source} has more episodes than labels. Export it again.")
            if known:
                rows = _own_rows(example, names, features, meta, known[count - 1], where)
            else:
                rows = _foreign_rows(example, names, features, where)
                number = None if own is None else labels.number(count - 1, rows.action)
                entry = None if own is None or number is None else own[1][number].labels
                rows = labelled(rows, entry, task)
                finals += rows.has_final_obs and _OWN_ENDS not in example
            write_rows(writer, matching(meta.env, rows, where, names))
            if progress is not None:
                progress(count, min(total, limit or total))
            if count == limit:
                break
        if known and count < min(len(known), limit or len(known)):
            raise DataError(f"{source} has {count} episodes and labels of {len(known)}. Copy it again.")
    if finals and notes is not None:
        notes.append(
            f"In {counted(finals, 'episode')}, the last step (is_last) has zeros as action and reward: it is "
            "stored as the observation after the last action, not as a frame."
        )
    if notes is not None:
        notes += labels.notes()
    return count


def _exported(folder: Path) -> tuple[DatasetMeta, list[ExportedEpisode]] | None:
    """Contract and labels of an export of ours; None for another dataset."""
    return from_sidecar(read_json(folder / OWN)) if (folder / OWN).is_file() else None


def _open(source: str | Path) -> tuple[Path, dict[str, RldsFeature]]:
    folder = folder_of(Path(source))
    if folder is None:
        raise DataError(
            f"{source} is no RLDS dataset: it has no {FEATURES}. Give the folder with the shards."
        )
    features = load_features(folder)
    if "action" not in features or features["action"].kind != "tensor":
        raise DataError(f"{source} has no steps/action of numbers; it has {', '.join(sorted(features))}.")
    return folder, features


def _shards(folder: Path) -> dict[str, list[Path]]:
    """Files of each split: <dataset>-<split>.tfrecord-00000-of-00001; another name counts as `train`."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.tfrecord*")):
        named = SPLIT.search(path.name)
        found.setdefault(named[1] if named else TRAIN, []).append(path)
    if not found:
        raise DataError(f"{folder} has no *.tfrecord files. Copy the dataset again.")
    return found


def _examples(folder: Path, split: str) -> Iterator[dict[str, Value]]:
    shards = _shards(folder)
    if split not in shards:
        raise DataError(f"{folder} has no split '{split}': give split={' or split='.join(sorted(shards))}.")
    for shard in shards[split]:
        for i, data in enumerate(read_records(shard)):
            yield decode_example(data, f"Record {i} of {shard}")


def _names(
    features: Mapping[str, RldsFeature], keys: Mapping[str, str] | None, source: str | Path
) -> dict[str, str]:
    """Observation -> column."""
    if keys:
        require_names(source, keys.values(), features, "array")
        return dict(keys)
    found = {}
    for name, feature in features.items():
        if name.startswith(_OBS) and feature.kind != "text":
            key = safe_key(name.removeprefix(_OBS).replace("/", "."))
            found[f"image.{key}" if feature.kind == "image" and feature.shape[-1:] == (3,) else key] = name
    require_obs(found, source)
    return found


def _rows(
    example: Mapping[str, Value], name: str, features: Mapping[str, RldsFeature], rows: int | None, where: str
) -> Shaped[ndarray, "n ..."]:
    """A column of the steps. Raises DataError if it is missing or of another shape or length."""
    feature, value = features[name], example.get(f"steps/{name}")
    if value is None:
        raise DataError(f"{where} has no steps/{name}. Copy the dataset again.")
    if feature.kind == "image":
        if not isinstance(value, list) or not all(isinstance(each, bytes) for each in value):
            raise DataError(f"{where}: steps/{name} holds no images. Copy the dataset again.")
        found: Any = np.stack([decode_picture(each, feature.shape, f"{where}: '{name}'") for each in value])
    elif isinstance(value, list):
        raise DataError(f"{where}: steps/{name} holds bytes, numbers were expected.")
    else:
        size = int(np.prod(feature.shape, dtype=np.int64))
        if len(value) % size:
            raise DataError(f"{where}: steps/{name} has {len(value)} numbers, rows of {size} were expected.")
        found = value.reshape(-1, *feature.shape)
    if rows is not None and len(found) != rows:
        raise DataError(f"{where}: steps/{name} has {len(found)} rows, but there are {rows} actions.")
    return np.asarray(found)


def _foreign_rows(
    example: Mapping[str, Value],
    names: Mapping[str, str],
    features: Mapping[str, RldsFeature],
    where: str,
) -> EpisodeRows:
    action = _rows(example, "action", features, None, where).astype(np.float32)
    count = len(action)
    zeros = np.zeros(count, dtype=np.float32)
    reward, ends, is_last = (
        _rows(example, name, features, count, where) if name in features else zeros
        for name in ("reward", "is_terminal", "is_last")
    )
    own_ends = example.get(_OWN_ENDS)
    if isinstance(own_ends, ndarray) and 0 <= count - len(own_ends) <= 1:
        n, terminated = len(own_ends), own_ends > 0
    else:
        n = count - _final_steps(action, reward, is_last)
        terminated = ends[:n] > 0
        terminated[-1:] |= bool(ends[-1:] > 0)
    obs = {}
    for key, name in names.items():
        values = _rows(example, name, features, count, where)
        obs[key] = values if features[name].kind == "image" else values.astype(features[name].dtype)
    words = next((example[f"steps/{name}"] for name in _TASKS if example.get(f"steps/{name}")), [])
    instruction = words[0].decode(errors="replace") if isinstance(words, list) and words else ""
    human = zeros
    if "intervention" in features and features["intervention"].shape == ():
        human = _rows(example, "intervention", features, count, where)
    labels = EpisodeMeta(complete=True, task=instruction, success=_success(example))
    return EpisodeRows(obs, action[:n], reward[:n].astype(np.float32), terminated, human[:n] > 0, {}, labels)


def _success(example: Mapping[str, Value]) -> bool | None:
    """The label episode_metadata/success, 0 or 1; None for other values, such as -1 of our exports."""
    value = example.get("episode_metadata/success")
    return bool(value[0]) if isinstance(value, ndarray) and len(value) == 1 and value[0] in (0, 1) else None


def _final_steps(
    action: Float32[ndarray, "n a"], reward: Shaped[ndarray, " n"], is_last: Shaped[ndarray, " n"]
) -> int:
    """1 if the last step only holds the observation after the last action, otherwise 0.

    RLDS leaves action and reward of such a step (is_last) undefined, and its writers fill them with zeros. A
    last step with any other number is a frame.
    """
    return int(len(action) > 1 and is_last[-1] > 0 and not action[-1].any() and not reward[-1].any())


def _own_rows(
    example: Mapping[str, Value],
    names: Mapping[str, str],
    features: Mapping[str, RldsFeature],
    meta: DatasetMeta,
    known: ExportedEpisode,
    where: str,
) -> EpisodeRows:
    action = _rows(example, "action", features, None, where)
    count = len(action)
    n = count - known.labels.final_obs
    obs = {}
    for key, name in names.items():
        spec, exact = meta.env.obs[key], example.get(f"{SIDECAR}/obs/{key}")
        if is_exact(spec.dtype):
            obs[key] = _rows(example, name, features, count, where).astype(spec.dtype)
        elif isinstance(exact, list) and exact:
            try:
                obs[key] = np.frombuffer(exact[0], dtype=spec.dtype).reshape(count, *spec.shape)
            except ValueError as error:
                raise DataError(f"{where}: '{key}' is cut. Export the dataset again.") from error
    stamps = {name: _numbers(example, f"{SIDECAR}/stamps/{name}", n, where) for name in meta.stamps}
    rows = EpisodeRows(
        obs,
        action[:n],
        _rows(example, "reward", features, count, where)[:n].astype(np.float32),
        _numbers(example, _OWN_ENDS, n, where) > 0,
        _rows(example, "intervention", features, count, where)[:n] > 0,
        stamps,
        known.labels,
    )
    return verified(rows, known.crc32c, where)


def _numbers(example: Mapping[str, Value], name: str, rows: int, where: str) -> Shaped[ndarray, " n"]:
    value = example.get(name)
    if value is None or isinstance(value, list) or len(value) != rows:
        raise DataError(f"{where} has no {rows} numbers in {name}. Export the dataset again.")
    return value
