"""Names and metadata of LeRobotDataset v3, v2.1 and v2.0: paths, and which feature each array becomes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_rl.core.errors import DataError, MissingDependencyError
from robo_rl.core.files.durable import read_json
from robo_rl.core.packages import pip_install
from robo_rl.core.spec import ArraySpec, sense_of
from robo_rl.core.text.named_numbers import parse_unit
from robo_rl.data.episodes.schema import DatasetMeta
from robo_rl.data.formats.contract import safe_key, stored_dtype

VERSION, VERSIONS_V2 = "v3.0", ("v2.0", "v2.1")  # exports have VERSION
INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
OWN, FINAL = "meta/robo_rl.json", "meta/robo_rl_final.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES_V2, TASKS_V2 = "meta/episodes.jsonl", "meta/tasks.jsonl"
DATA_V2 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO_V2 = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
CHUNK_FILES = 1000
DATA_MB, VIDEO_MB = 100, 200  # size at which the next file begins

STATE, IMAGES, OBS = "observation.state", "observation.images.", "observation."
COUNTERS = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,120}")
_LARGEST_SIDE = 16384
# letters and these fields alone: a field of another form could read attributes, a width fill the memory
_PATTERN = re.compile(
    r"(?:[\w .=/-]|\{(?:episode_chunk|episode_index)(?::0?\d?d)?\}|\{video_key\})+", re.ASCII
)


@dataclass(frozen=True, slots=True)
class LeRobotFeature:
    """A column of a LeRobot dataset. dtype: of NumPy, or "video" or "image" (h, w, c). names: of the
    numbers of a vector; empty unless each has one.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()

    @property
    def is_picture(self) -> bool:
        return self.dtype in ("video", "image")


def feature_name(key: str, spec: ArraySpec) -> str:
    """Name of an observation: state -> observation.state, image.front -> observation.images.front."""
    if sense_of(key, spec) == "image" and key.startswith("image."):
        return IMAGES + key.removeprefix("image.")
    return OBS + key


def obs_key(name: str) -> str:
    """Observation of a feature: the inverse of `feature_name`, for foreign names too."""
    if name.startswith(IMAGES):
        return safe_key("image." + name.removeprefix(IMAGES))
    if name == "observation.image":
        return "image.camera"
    return safe_key(name.removeprefix(OBS))


def own_features(meta: DatasetMeta, pictures: str) -> dict[str, dict[str, Any]]:
    """`features` of info.json for a dataset. pictures: "video" or "image"."""
    found: dict[str, dict[str, Any]] = {}
    for key, spec in meta.env.obs.items():
        name = feature_name(key, spec)
        if name.startswith(IMAGES):
            axes = ["height", "width", "channels"]
            found[name] = {"dtype": pictures, "shape": list(spec.shape), "names": axes}
        else:
            found[name] = _feature(spec.dtype, spec.shape or (1,), spec.unit)
    found["action"] = _feature("float32", (meta.env.action.dim,), meta.env.action.unit)
    found |= {"next.reward": _feature("float32", (1,))}
    found |= {name: _feature("bool", (1,)) for name in ("next.done", "next.success", "intervention")}
    found |= {"next.terminated": _feature("bool", (1,))}
    found |= {f"stamps.{name}": _feature("int64", (1,)) for name in meta.stamps}
    found |= {name: _feature("float32" if name == "timestamp" else "int64", (1,)) for name in COUNTERS}
    return found


def _feature(dtype: str, shape: tuple[int, ...], unit: str = "") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "names": number_names(unit, shape)}


def number_names(unit: str, shape: tuple[int, ...]) -> list[str] | None:
    """Names of a vector's numbers, such as those of joints; with their unit where one comes twice."""
    segments = parse_unit(unit)
    names = [name for segment in segments for name in segment.names]
    if len(shape) != 1 or len(names) != shape[0] or not all(name[:1].isalpha() for name in names):
        return None  # units may also be free text, such as "motor command: -1 stopped, 1 full speed"
    if len(set(names)) < len(names):
        return [f"{name} [{segment.unit}]" for segment in segments for name in segment.names]
    return names


@dataclass(frozen=True, slots=True)
class LeRobotInfo:
    """info.json of a LeRobot dataset, checked.

    data_path, video_path: patterns of file names. chunk_episodes: episodes in a folder of v2. totals: stated
    numbers of episodes and of frames.
    """

    root: Path
    version: str
    fps: float
    robot: str
    features: dict[str, LeRobotFeature]
    data_path: str
    video_path: str
    chunk_episodes: int
    totals: tuple[int | None, int | None]

    @property
    def file_per_episode(self) -> bool:
        """True if each episode has files of its own, as in v2."""
        return self.version in VERSIONS_V2

    @property
    def pictures(self) -> list[LeRobotFeature]:
        return [each for each in self.features.values() if each.is_picture]

    @classmethod
    def load(cls, root: Path) -> LeRobotInfo:
        """Parsed info.json. Raises DataError for another version and for names that lead out of the
        folder.
        """
        data = read_json(root / INFO)
        version = data.get("codebase_version") if isinstance(data, dict) else None
        if not isinstance(version, str) or not (version in VERSIONS_V2 or version.startswith("v3.")):
            raise DataError(
                f"{root / INFO} has codebase_version {version!r}; v2.0, v2.1 or v3.0 was expected. Older "
                "LeRobot datasets are converted by LeRobot's own script convert_dataset_v1_to_v2."
            )
        usual = (DATA_V2, VIDEO_V2) if version in VERSIONS_V2 else (DATA, VIDEO)
        try:
            paths = data["data_path"], data.get("video_path") or usual[1]
            features = dict(_features(data["features"]))
            fps, chunk = float(data["fps"]), int(data.get("chunks_size") or CHUNK_FILES)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{root / INFO} is broken ({error!r}). Copy the dataset again.") from error
        inside = paths == usual or (version in VERSIONS_V2 and _leads_inside(*paths))
        if not inside or not 0.0 < fps < 1e5 or chunk < 1:
            raise DataError(
                f"{root / INFO} names files as {paths} at {fps} fps, {chunk} in a folder; expected {usual}, "
                "a rate above 0 and 1 or more in a folder. Write the dataset with LeRobot again."
            )
        robot = str(data.get("robot_type") or root.name)
        counts = [data.get(name) for name in ("total_episodes", "total_frames")]
        episodes, frames = (count if isinstance(count, int) else None for count in counts)
        return cls(root, version, fps, robot, features, *paths, chunk, (episodes, frames))


def _leads_inside(data: object, video: object) -> bool:
    """True if these patterns name a file for each episode and camera, and none outside of the dataset."""
    for pattern in (data, video):
        if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
            return False
        if pattern.startswith("/") or ".." in pattern or "{episode_index" not in pattern:
            return False
    return "{video_key}" in str(video) and "{video_key}" not in str(data)


def _features(entries: dict[str, Any]) -> Iterator[tuple[str, LeRobotFeature]]:
    for name, entry in entries.items():
        shape = tuple(entry["shape"])
        sizes = all(isinstance(n, int) and 0 < n < _LARGEST_SIDE for n in shape)
        if not _NAME.fullmatch(name) or ".." in name or not sizes or len(shape) > 7:
            raise ValueError(f"feature {name[:60]!r} of shape {shape}")
        dtype = str(entry["dtype"])
        if dtype in ("video", "image"):
            if len(shape) != 3:
                raise ValueError(f"{name} of shape {shape}")
            names = entry.get("names") or ()
            if list(names)[:1] in (["channel"], ["channels"]):  # (c, h, w)
                shape = (*shape[1:], shape[0])
        elif dtype == "string":
            continue
        elif stored_dtype(dtype) is None and dtype != "bool":
            raise ValueError(f"{name} of type {dtype!r}")
        named = tuple(_flat_names(entry.get("names"))) if len(shape) == 1 else ()
        yield name, LeRobotFeature(name, dtype, shape, named if shape == (len(named),) else ())


def _flat_names(names: Any) -> Iterator[str]:
    """Names in a list, also inside groups ({"motors": [...]}), or with their numbers ({"x": 0, "y": 1})."""
    if isinstance(names, str):
        yield names
    elif isinstance(names, dict) and all(isinstance(number, int) for number in names.values()):
        yield from sorted(names, key=lambda name: names[name])
    elif isinstance(names, dict | list):
        for each in names.values() if isinstance(names, dict) else names:
            yield from _flat_names(each)


def pyarrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet. Raises MissingDependencyError without them."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"LeRobot datasets need the package 'pyarrow'. Run: {pip_install('formats')}"
        ) from error
    return pa, pq


def write_json_plain(path: Path, data: Any) -> None:
    """Indented JSON, as LeRobot writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=4, ensure_ascii=False, allow_nan=False))
