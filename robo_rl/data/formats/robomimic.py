"""robomimic HDF5 files: export of a dataset, and import of exports and of foreign files.

    data                 attributes: total, env_args (JSON), robo_rl (JSON: our contract)
    data/demo_0          attributes: num_samples, robo_rl (JSON: labels)
    data/demo_0/obs/<key>  actions  rewards  dones         n rows each
    data/demo_0/robo_rl/intervention, stamps_ns, final/<key>   what the format has no place for
    mask/successful, mask/failed                           names of demos by label

Images are arrays (n, h, w, 3) named <camera>_image. Actions are in physical units: normalise them by the
limits in env_args where a policy expects [-1, 1].
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError, MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import Shaped
from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.atomic_dataset import atomic_dataset
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.schema import STAMPS, Codec, DatasetMeta
from robo_rl.data.formats.contract import (
    ForeignSpec,
    extremes,
    inferred,
    require_names,
    require_obs,
    safe_key,
    stored_dtype,
    unknown_ends,
    without_unknown_end,
)
from robo_rl.data.formats.exported_labels import labelled
from robo_rl.data.formats.output import new_output
from robo_rl.data.formats.rows import (
    SIDECAR,
    EpisodeRows,
    checksum,
    exported_episode,
    from_sidecar,
    labels_from,
    labels_json,
    matching,
    raw_bytes,
    rows_of,
    short_name,
    verified,
    write_rows,
)

_LARGEST_BYTES = 1 << 35  # of one array of one demo
Progress = Callable[[int, int], None] | None


def export_robomimic(path: str | Path, out: str | Path, progress: Progress = None) -> int:
    """Write a dataset as one HDF5 file; returns the number of episodes. Raises DataError if it is empty."""
    store = EpisodeStore(path)
    if not len(store):
        raise DataError(f"{path} holds no episodes to export.")
    env = store.spec
    with new_output(out, raw_bytes(store)) as partial, closing(_h5py().File(partial, "w")) as file:
        data = file.create_group("data")
        arguments = {"low": env.action.low, "high": env.action.high, "control_hz": env.control_hz}
        data.attrs["env_args"] = json.dumps({"env_name": env.name, "type": 0, "env_kwargs": arguments})
        data.attrs["total"] = store.totals.frames
        data.attrs[SIDECAR] = json.dumps({"dataset": store.meta.to_json(), "episodes": []})
        labelled: dict[str, list[str]] = {"successful": [], "failed": []}
        for i, episode in enumerate(store):
            _write_demo(data.create_group(f"demo_{i}"), rows_of(episode), store.meta)
            if episode.success is not None:
                labelled["successful" if episode.success else "failed"].append(f"demo_{i}")
            if progress is not None:
                progress(i + 1, len(store))
        for name, demos in labelled.items():
            if demos:
                file.create_dataset(f"mask/{name}", data=np.array(demos, dtype="S"))
    return len(store)


def _write_demo(demo: Any, rows: EpisodeRows, meta: DatasetMeta) -> None:
    demo.attrs["num_samples"] = rows.frames
    demo.attrs[SIDECAR] = json.dumps({**labels_json(rows.labels), "crc32c": checksum(rows)})
    for key, values in rows.obs.items():
        demo.create_dataset(f"obs/{_name(meta.env, key)}", data=values[: rows.frames])
    demo.create_dataset("actions", data=rows.action)
    demo.create_dataset("rewards", data=rows.reward)
    demo.create_dataset("dones", data=rows.terminated.astype(np.uint8))
    demo.create_dataset(f"{SIDECAR}/intervention", data=rows.intervention.astype(np.uint8))
    if meta.stamps:
        stamps = np.stack([rows.stamps[name] for name in meta.stamps], axis=1)
        demo.create_dataset(f"{SIDECAR}/{STAMPS}", data=stamps)
    for key, value in rows.final_obs().items():
        demo.create_dataset(f"{SIDECAR}/final/{_name(meta.env, key)}", data=value)


def import_robomimic(
    source: str | Path,
    out: str | Path,
    *,
    env: EnvSpec | None = None,
    keys: Mapping[str, str] | None = None,
    task: str = "",
    image_codec: Codec | None = None,
    limit: int | None = None,
    notes: list[str] | None = None,
    progress: Progress = None,
) -> int:
    """Write the demos of a file as a dataset; returns their number.

    A file of `export_robomimic` is imported exactly. For others the contract is `env`, or is inferred:
    limits a little wider than the actions, the rate in env_args. keys: observation -> name in
    obs/; None: all, `<camera>_image` as `image.<camera>`. notes: gets a sentence on
    episodes of which it is not known whether they ran out of time. Raises DataError for a file of another
    structure.
    """
    with _reading(source) as file:
        demos = _demos(file, source)
        own = _json(file["data"].attrs.get(SIDECAR))
        if own is not None and env is None and not keys:
            marked: dict[str, bool] = {}
            meta, _ = from_sidecar(own)
            names = {key: _name(meta.env, key) for key in meta.env.obs}
        else:
            names = _chosen(file["data"][demos[0]], keys, source)
            require_obs(names, source)
            contract = env or inferred(_foreign(file, demos, names, source), notes)
            meta, own = DatasetMeta(contract, image_codec or "raw", stamps=()), None
            marked = _marked(file)
        unknown = 0  # episodes of which it is not known whether they ran out of time
        info = {**meta.info, "source": Path(source).name}
        with atomic_dataset(
            out, meta.env, image_codec=image_codec or "raw", stamps=meta.stamps, info=info
        ) as writer:
            for i, demo in enumerate(demos[:limit]):
                where, group = f"{source}: {demo}", file["data"][demo]
                if own is not None:
                    rows = _read_own(group, names, meta, where)
                else:
                    rows = _read_foreign(group, names, marked.get(demo), task, where)
                    unknown += _ends_with_done(group) and not rows.terminated[-1:].any()
                write_rows(writer, matching(meta.env, rows, where, names))
                if progress is not None:
                    progress(i + 1, len(demos[:limit]))
    if unknown and notes is not None:
        notes.append(unknown_ends(unknown))
    return len(demos[:limit])


def _read_demo(demo: Any, names: Mapping[str, str], where: str) -> EpisodeRows:
    """Arrays that other programs write, too."""
    frames = _rows(demo, "actions", where).shape[0]
    obs = {key: _rows(demo, f"obs/{name}", where, frames) for key, name in names.items()}
    zeros = np.zeros(frames, dtype=np.float32)
    reward = _rows(demo, "rewards", where, frames) if "rewards" in demo else zeros
    done = _rows(demo, "dones", where, frames) if "dones" in demo else zeros
    human = f"{SIDECAR}/intervention"
    return EpisodeRows(
        obs,
        np.asarray(_rows(demo, "actions", where), dtype=np.float32),
        np.asarray(reward, dtype=np.float32).reshape(frames),
        done.reshape(frames) > 0,
        (_rows(demo, human, where, frames) if human in demo else zeros).reshape(frames) > 0,
    )


def _read_own(demo: Any, names: Mapping[str, str], meta: DatasetMeta, where: str) -> EpisodeRows:
    """A demo of `export_robomimic`, exactly."""
    known = exported_episode(_json(demo.attrs.get(SIDECAR)))
    rows = _read_demo(demo, names, where)
    _rows(demo, f"{SIDECAR}/intervention", where, rows.frames)
    stamps = _rows(demo, f"{SIDECAR}/{STAMPS}", where, rows.frames).T if meta.stamps else ()
    rows = replace(rows, stamps=dict(zip(meta.stamps, stamps, strict=True)), labels=known.labels)
    return verified(
        _with_final(rows, demo, names, where) if known.labels.final_obs else rows, known.crc32c, where
    )


def _read_foreign(
    demo: Any, names: Mapping[str, str], success: bool | None, task: str, where: str
) -> EpisodeRows:
    """A demo with its labels: those of our export, which are an attribute of the demo, and the masks."""
    own = _json(demo.attrs.get(SIDECAR))
    known = None if own is None else labels_from(own)
    rows = _read_demo(demo, names, where)
    rows = replace(rows, labels=replace(rows.labels, success=success))
    if known is None:
        rows = replace(rows, terminated=without_unknown_end(rows.terminated, success))
    if (
        known is not None
        and known.final_obs
        and all(f"{SIDECAR}/final/{each}" in demo for each in names.values())
    ):
        rows = _with_final(rows, demo, names, where)
    return labelled(rows, known, task)


def _ends_with_done(demo: Any) -> bool:
    return "dones" in demo and bool(np.any(demo["dones"][-1:]))


def _with_final(rows: EpisodeRows, demo: Any, names: Mapping[str, str], where: str) -> EpisodeRows:
    last = {key: _rows(demo, f"{SIDECAR}/final/{name}", where) for key, name in names.items()}
    if fault := next((key for key, value in last.items() if value.shape != rows.obs[key].shape[1:]), None):
        raise DataError(
            f"{where}: the last '{fault}' has shape {last[fault].shape}. Export the dataset again."
        )
    return rows.with_final_obs(last)


def _marked(file: Any) -> dict[str, bool]:
    """Success of the demos in mask/successful and mask/failed; without those that are in both."""
    successful, failed = (_mask(file, name) for name in ("successful", "failed"))
    return dict.fromkeys(successful - failed, True) | dict.fromkeys(failed - successful, False)


def _mask(file: Any, name: str) -> set[str]:
    """Names of demos in a mask; empty for an absent one, and for anything but names inside the file."""
    found = file.get(f"mask/{name}")
    if found is None or not hasattr(found, "shape") or len(found.shape) != 1:
        return set()
    linked = found.file.filename != file.filename or found.external or found.is_virtual
    if linked or _h5py().check_string_dtype(found.dtype) is None or found.nbytes > _LARGEST_BYTES:
        return set()
    return {each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in found[()]}


def _rows(demo: Any, name: str, where: str, frames: int | None = None) -> Shaped[ndarray, "n ..."]:
    """An array of numbers. Raises DataError for one that is missing, too short, or of another kind."""
    found = demo.get(name)
    if found is None or not hasattr(found, "shape"):
        raise DataError(f"{where} has no array '{name}'. Give another source=, or name others in keys=.")
    linked = found.file.filename != demo.file.filename or found.external or found.is_virtual
    if found.dtype.kind not in "biuf" or linked or found.nbytes > _LARGEST_BYTES:
        raise DataError(f"{where}: '{name}' is {found.dtype}: only numbers inside the file are read.")
    if frames is not None and (not found.shape or found.shape[0] != frames):
        raise DataError(f"{where}: '{name}' has shape {found.shape}, but there are {frames} actions.")
    return np.asarray(found[()])


def _chosen(demo: Any, keys: Mapping[str, str] | None, source: str | Path) -> dict[str, str]:
    """Observation -> name in obs/, of keys=, or all. Raises DataError for a name that the demo lacks."""
    if not keys:
        return _names(demo)
    obs = demo.get("obs")
    if absent := [name for name in keys.values() if not hasattr(obs, "items") or name not in obs]:
        require_names(source, absent, _names(demo).values(), "observation")
    return dict(keys)


def _names(demo: Any) -> dict[str, str]:
    """Observation -> name in obs/, for all arrays of numbers of a demo."""
    found: dict[str, str] = {}
    obs = demo.get("obs")
    for name, array in obs.items() if hasattr(obs, "items") else ():
        if hasattr(array, "shape") and array.dtype.kind in "biuf" and stored_dtype(str(array.dtype)):
            picture = array.dtype == np.uint8 and len(array.shape) == 4 and array.shape[-1] == 3
            camera = safe_key(name.removesuffix("_image"))
            found[f"image.{camera}" if picture else safe_key(name)] = name
    return found


def describe_robomimic(source: str | Path, keys: Mapping[str, str] | None = None) -> ForeignSpec:
    """Shapes, extremes and rate of a file. Raises DataError as `import_robomimic` does."""
    with _reading(source) as file:
        demos = _demos(file, source)
        names = _chosen(file["data"][demos[0]], keys, source)
        require_obs(names, source)
        return _foreign(file, demos, names, source)


def _foreign(file: Any, demos: list[str], names: Mapping[str, str], source: str | Path) -> ForeignSpec:
    arguments = _json(file["data"].attrs.get("env_args")) or {}
    kwargs = arguments.get("env_kwargs") if isinstance(arguments, dict) else None
    stated = kwargs.get("control_freq", kwargs.get("control_hz")) if isinstance(kwargs, dict) else None
    stated_hz = float(stated) if isinstance(stated, int | float) and stated > 0 else None
    first = file["data"][demos[0]]
    arrays = {key: _rows(first, f"obs/{name}", f"{source}: {demos[0]}") for key, name in names.items()}
    actions = [_rows(file["data"][demo], "actions", f"{source}: {demo}") for demo in demos]
    if any(each.ndim != 2 for each in actions):
        raise DataError(f"{source}: actions must have the shape (n, a), found {actions[0].shape}.")
    low, high = extremes(np.asarray(each, dtype=np.float32) for each in actions)
    obs = {key: (values.shape[1:], str(values.dtype)) for key, values in arrays.items()}
    return ForeignSpec(Path(source).stem, obs, low, high, max(map(len, actions)), stated_hz)


def _name(env: EnvSpec, key: str) -> str:
    return f"{short_name(env, key)}_image" if key.startswith("image.") else key


def _demos(file: Any, source: str | Path) -> list[str]:
    data = file.get("data")
    demos = [name for name in data if name.startswith("demo_")] if hasattr(data, "keys") else []
    if not demos:
        raise DataError(f"{source} is no robomimic file: it has no groups data/demo_<number>.")
    return sorted(demos, key=lambda name: (len(name), name))


def _json(text: Any) -> Any:
    if not isinstance(text, str | bytes):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@contextmanager
def _reading(source: str | Path) -> Iterator[Any]:
    """The open file. Turns errors of a broken file into DataError."""
    h5py = _h5py()
    try:
        with closing(h5py.File(source, "r")) as file:
            yield file
    except (OSError, KeyError, RuntimeError) as error:
        if (
            isinstance(error, OSError)
            and error.errno is not None
            and not isinstance(error, FileNotFoundError)
        ):
            raise
        raise DataError(
            f"{source} cannot be read as HDF5 ({error}). It is truncated or another format."
        ) from error


def _h5py() -> Any:
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"HDF5 files need the package 'h5py'. Run: {pip_install('formats')}"
        ) from error
    return h5py
