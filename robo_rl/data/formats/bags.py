"""Export as MCAP recordings in the folders of rosbag2, for Foxglove and ROS 2 tools; exact import of exports.

    <out>/robo_rl.json                       contract, labels, checksums
    <out>/episode_000000/episode_000000.mcap metadata.yaml

    /observation/<key>     std_msgs/<Type>MultiArray, or sensor_msgs/Image for images (rgb8), depth (32FC1)
    and
                           segmentation (mono8); one message more with an observation after the last action
    /action /reward /terminated /intervention   one message per frame
    /stamps_ns             the recorded time stamps, if there are any
    /task /success         once, if known

The time of a message is that of its frame: its stamp of receipt if there is one, else frame / rate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError, MissingDependencyError
from robo_rl.core.files.durable import read_json
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import Shaped
from robo_rl.core.spec import ArraySpec, EnvSpec
from robo_rl.data.episodes.atomic_dataset import atomic_dataset
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.schema import NO_STAMP, Codec, DatasetMeta
from robo_rl.data.formats.output import new_output
from robo_rl.data.formats.rows import (
    EpisodeRows,
    ExportedEpisode,
    checksum,
    from_sidecar,
    raw_bytes,
    rows_of,
    sidecar,
    verified,
    write_rows,
)

OWN = "robo_rl.json"
_STAMPS = "/stamps_ns"  # columns as in robo_rl.json
_ARRAYS = {  # type of an array -> type of its message, and of the message's data
    "float16": ("Float32MultiArray", "float32"), "float32": ("Float32MultiArray", "float32"),
    "float64": ("Float64MultiArray", "float64"), "int32": ("Int32MultiArray", "int32"),
    "int64": ("Int64MultiArray", "int64"), "uint16": ("UInt16MultiArray", "uint16"),
    "uint8": ("UInt8MultiArray", "uint8"), "bool": ("UInt8MultiArray", "uint8"),
}  # fmt: skip
_IMAGES = {("uint8", 3): "rgb8", ("uint8", 1): "mono8", ("float32", 0): "32FC1"}
Progress = Callable[[int, int], None] | None


def export_mcap(path: str | Path, out: str | Path, progress: Progress = None) -> int:
    """Write each episode as a recording; returns their number. Raises DataError if the dataset is empty."""
    store = EpisodeStore(path)
    if not len(store):
        raise DataError(f"{path} holds no episodes to export.")
    bags, types = _rosbags()
    checksums = []
    with new_output(out, raw_bytes(store)) as partial:
        partial.mkdir()
        for i, episode in enumerate(store):
            rows = rows_of(episode)
            checksums.append(checksum(rows))
            folder = partial / _folder(i)
            with bags.Writer(folder, version=9, storage_plugin=bags.StoragePlugin.MCAP) as bag:
                _write(bag, types, rows, store.meta)
            if progress is not None:
                progress(i + 1, len(store))
        (partial / OWN).write_text(json.dumps(sidecar(store, checksums), allow_nan=False))
    return len(store)


def import_mcap(
    source: str | Path, out: str | Path, *, image_codec: Codec | None = None, limit: int | None = None,
    progress: Progress = None,
) -> int:  # fmt: skip
    """Exact inverse of `export_mcap`; returns the number of episodes."""
    meta, known = from_sidecar(read_json(Path(source) / OWN))
    info = {**meta.info, "source": Path(source).name}
    chosen = known[:limit]
    with atomic_dataset(
        out, meta.env, image_codec=image_codec or "raw", stamps=meta.stamps, info=info
    ) as writer:
        for i, episode in enumerate(chosen):
            write_rows(writer, _read(Path(source) / _folder(i), meta, episode))
            if progress is not None:
                progress(i + 1, len(chosen))
    return len(chosen)


def _folder(number: int) -> str:
    return f"episode_{number:06d}"


def _topic(key: str) -> str:
    return f"/observation/{key.replace('.', '/').replace('-', '_')}"


def _streams(env: EnvSpec) -> dict[str, ArraySpec]:
    """Topic -> rows of its messages, of every array with one row per frame."""
    found = {_topic(key): spec for key, spec in env.obs.items()}
    found["/action"] = ArraySpec((env.action.dim,))
    one = (1,)
    return (
        found
        | {"/reward": ArraySpec(one), "/terminated": ArraySpec(one, "bool")}
        | {"/intervention": ArraySpec(one, "bool")}
    )


def _arrays(rows: EpisodeRows) -> dict[str, Shaped[ndarray, "n ..."]]:
    found = {_topic(key): values for key, values in rows.obs.items()}
    names = ("action", "reward", "terminated", "intervention")
    return found | {f"/{name}": getattr(rows, name) for name in names}


def _write(bag: Any, types: Any, rows: EpisodeRows, meta: DatasetMeta) -> None:
    streams = _streams(meta.env)
    if len(streams) != len(meta.env.obs) + 4:
        raise DataError(f"Two observations of '{meta.env.name}' have the same topic: rename one.")
    kinds = {topic: _message_type(spec) for topic, spec in streams.items()}
    connections = {topic: bag.add_connection(topic, kind, typestore=types) for topic, kind in kinds.items()}
    stamps = dict(rows.stamps)
    times = _times_ns(stamps.get("t_receive_ns"), rows, meta.env.control_hz)
    labels: dict[str, tuple[str, str | bool | None]] = {
        "/task": ("std_msgs/msg/String", rows.labels.task or None),
        "/success": ("std_msgs/msg/Bool", rows.labels.success),
    }
    for topic, (kind, value) in labels.items():
        if value is not None:
            connection = bag.add_connection(topic, kind, typestore=types)
            bag.write(connection, times[0], types.serialize_cdr(types.types[kind](value), kind))
    if stamps:
        streams[_STAMPS] = ArraySpec((len(stamps),), "int64")
        kinds[_STAMPS] = _message_type(streams[_STAMPS])
        connections[_STAMPS] = bag.add_connection(_STAMPS, kinds[_STAMPS], typestore=types)
    arrays = _arrays(rows)
    if stamps:
        arrays[_STAMPS] = np.stack([stamps[name] for name in meta.stamps], axis=1)
    for topic, values in arrays.items():
        for row, time_ns in zip(values, times, strict=False):
            message = _message(types, row, streams[topic], time_ns)
            bag.write(connections[topic], time_ns, types.serialize_cdr(message, kinds[topic]))


def _times_ns(receive: Shaped[ndarray, " n"] | None, rows: EpisodeRows, rate_hz: float) -> list[int]:
    """Time of every frame, and of the observation after the last one."""
    period_ns = round(1e9 / rate_hz)
    if receive is not None and (receive != NO_STAMP).all() and (np.diff(receive) >= 0).all():
        times = receive.tolist()
    else:
        times = [i * period_ns for i in range(rows.frames)]
    return [max(0, each) for each in [*times, times[-1] + period_ns]]


def _message_type(spec: ArraySpec) -> str:
    if _encoding(spec):
        return "sensor_msgs/msg/Image"
    return f"std_msgs/msg/{_ARRAYS[spec.dtype][0]}"


def _encoding(spec: ArraySpec) -> str:
    """Encoding of an image message; empty for arrays."""
    channels = spec.shape[2] if len(spec.shape) == 3 else 0 if len(spec.shape) == 2 else -1
    return _IMAGES.get((spec.dtype, channels), "")


def _message(types: Any, row: Shaped[ndarray, "..."], spec: ArraySpec, time_ns: int) -> Any:
    known = types.types
    data = np.ascontiguousarray(row)
    if encoding := _encoding(spec):
        stamp = known["builtin_interfaces/msg/Time"](*divmod(time_ns % (2**31 * 10**9), 10**9))
        header = known["std_msgs/msg/Header"](stamp, "camera")
        height, width = data.shape[:2]
        flat = data.reshape(-1).view(np.uint8)
        return known["sensor_msgs/msg/Image"](header, height, width, encoding, 0, data.nbytes // height, flat)
    name, dtype = _ARRAYS[spec.dtype]
    layout = known["std_msgs/msg/MultiArrayLayout"]([], 0)
    return known[f"std_msgs/msg/{name}"](layout, data.reshape(-1).astype(dtype))


def _read(folder: Path, meta: DatasetMeta, known: ExportedEpisode) -> EpisodeRows:
    streams = _streams(meta.env)
    if meta.stamps:
        streams[_STAMPS] = ArraySpec((len(meta.stamps),), "int64")
    found: dict[str, list[Any]] = {topic: [] for topic in streams}
    for topic, message in _messages(folder):
        if topic in found:
            found[topic].append(message.data)
    arrays = {topic: _joined(values, streams[topic], f"{folder}: {topic}") for topic, values in found.items()}
    reward, ends, human = (
        arrays[f"/{name}"].reshape(-1) for name in ("reward", "terminated", "intervention")
    )
    obs = {key: arrays[_topic(key)] for key in meta.env.obs}
    stamps = dict(zip(meta.stamps, arrays[_STAMPS].T, strict=True)) if meta.stamps else {}
    rows = EpisodeRows(obs, arrays["/action"], reward, ends, human, stamps, known.labels)
    return verified(rows, known.crc32c, str(folder))


def _messages(folder: Path) -> Iterator[tuple[str, Any]]:
    bags, types = _rosbags()
    try:
        with bags.Reader(folder) as bag:
            for connection, _, data in bag.messages():
                yield connection.topic, types.deserialize_cdr(data, connection.msgtype)
    except (OSError, bags.ReaderError, ValueError, KeyError, IndexError, AssertionError) as error:
        raise DataError(f"{folder} cannot be read as a recording ({error!r}). Export it again.") from error


def _joined(values: list[Any], spec: ArraySpec, where: str) -> Shaped[ndarray, "n ..."]:
    try:
        dtype = spec.dtype if _encoding(spec) else _ARRAYS[spec.dtype][1]
        rows = [np.asarray(each).view(dtype).reshape(spec.shape) for each in values]
    except ValueError as error:
        raise DataError(f"{where} holds messages of another size ({error}). Export it again.") from error
    if not rows:
        raise DataError(f"{where} has no messages. Export the dataset again.")
    return np.stack(rows).astype(spec.dtype)


def _rosbags() -> tuple[Any, Any]:
    """The module of recordings, and the types of ROS 2 messages."""
    try:
        from rosbags import rosbag2
        from rosbags.typesys import Stores, get_typestore
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"MCAP recordings need the package 'rosbags'. Run: {pip_install('dds')}"
        ) from error
    return rosbag2, get_typestore(Stores.ROS2_JAZZY)
