"""Import of LeRobotDataset folders (v2.0, v2.1, v3): exports of `writer.py` exactly, others with a given or
inferred contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import read_json
from robo_rl.core.shapes import Bool, Float32, Shaped, UInt8
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
    unknown_ends,
    without_unknown_end,
)
from robo_rl.data.formats.exported_labels import ExportedLabels, labelled
from robo_rl.data.formats.lerobot import layout
from robo_rl.data.formats.lerobot.column_order import column_order, ordered
from robo_rl.data.formats.lerobot.columns import from_arrow
from robo_rl.data.formats.lerobot.episode_files import (
    EpisodeFiles,
    count_differences,
    episode_files,
    task_names,
)
from robo_rl.data.formats.lerobot.final_obs import known_final, read_final
from robo_rl.data.formats.lerobot.layout import LeRobotFeature, LeRobotInfo
from robo_rl.data.formats.lerobot.tables import column_of, read_table
from robo_rl.data.formats.lerobot.video import Mp4Reader
from robo_rl.data.formats.pictures import decode_picture
from robo_rl.data.formats.rows import EpisodeRows, from_sidecar, matching, verified, write_rows

_REWARDS = ("next.reward", "reward")
_ENDS = ("next.terminated", "next.done", "next.truncated", "next.success")
_HUMAN = ("intervention", "complementary_info.is_intervention")
Progress = Callable[[int, int], None] | None


def is_lerobot(source: Path) -> bool:
    """True for a folder with the info.json of a LeRobot dataset."""
    return (source / layout.INFO).is_file()


def import_lerobot(
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
    """Write the episodes of a LeRobot dataset as a dataset; returns their number.

    A folder that `export_lerobot` wrote is imported exactly, videos as they were decoded. For others the
    contract is `env`, or inferred: rate and shapes of info.json, limits a little wider than the actions. An
    export of ours keeps its labels with another contract, too. keys: observation -> feature; None: every
    feature `observation.*`. Numbers of states and actions come in the order of `env`, if it has the
    same names. notes: gets sentences on this order, and on labels that were not used. Raises DataError for
    another version or a broken folder.
    """
    root = Path(source)
    info = LeRobotInfo.load(root)
    reader = _Reader(info)
    own = root / layout.OWN
    exact = own.is_file() and env is None and not keys
    stored, known = from_sidecar(read_json(own)) if own.is_file() else (None, [])
    if exact and stored is not None:
        meta = stored
        names = {key: layout.feature_name(key, spec) for key, spec in meta.env.obs.items()}
        final = read_final(root, meta.env, names, [each.labels for each in known])
    else:
        names = dict(keys) if keys else reader.observations()
        require_obs(names, source)
        reader.require(names)
        meta = DatasetMeta(env or inferred(reader.foreign(names), notes), image_codec or "raw", stamps=())
        final = (
            {} if stored is None else known_final(root, stored.env, names, [each.labels for each in known])
        )
    sentences: list[str] = []
    order = {} if exact or env is None else column_order(env, names, reader.features, sentences)
    places = episode_files(info)
    sentences += count_differences(info, places)
    labels = ExportedLabels(known, len(places))
    if exact and len(known) != len(places):
        raise DataError(f"{source} has {len(places)} episodes and labels of {len(known)}. Export it again.")
    source_info = {**meta.info, "source": root.name}
    with (
        closing(reader),
        atomic_dataset(
            out, meta.env, image_codec=image_codec or "raw", stamps=meta.stamps, info=source_info
        ) as writer,
    ):
        for i, place in enumerate(places[:limit]):
            where = f"Episode {i} of {source}"
            rows = _with_scalars(meta.env, reader.read(place, names, meta.stamps, where))
            if exact:
                rows = replace(rows, labels=known[i].labels)
                rows = rows.with_final_obs(final[i]) if rows.labels.final_obs else rows
                rows = matching(meta.env, rows, where)
                verified(rows, known[i].crc32c, where, images=not reader.has_video)
            else:
                number = labels.number(i, rows.action)
                if number is not None and labels.by_position and _relabelled(rows, known[number].labels):
                    number = None  # the episodes may have another order
                rows = _labelled(rows, None if number is None else known[number].labels, task)
                rows = rows.with_final_obs(final[number]) if number in final else rows
                rows = ordered(rows, order)
            write_rows(writer, matching(meta.env, rows, where, names))
            if progress is not None:
                progress(i + 1, len(places[:limit]))
    if notes is not None:
        sentences += [unknown_ends(reader.unknown_ends)] if reader.unknown_ends else []
        sentences += [_longer_videos(root, reader.longer_videos)] if reader.longer_videos else []
        notes += [] if exact else [*sentences, *labels.notes()]
    return len(places[:limit])


def describe_lerobot(source: str | Path, keys: Mapping[str, str] | None = None) -> ForeignSpec:
    """Shapes, extremes and rate of a dataset. Raises DataError as `import_lerobot` does."""
    reader = _Reader(LeRobotInfo.load(Path(source)))
    names = dict(keys) if keys else reader.observations()
    require_obs(names, source)
    reader.require(names)
    return reader.foreign(names)


class _Reader:
    """Tables and videos of one LeRobot dataset, read forwards."""

    def __init__(self, info: LeRobotInfo) -> None:
        self._info, self._root = info, info.root
        self._tables: dict[Path, Any] = {}
        self.unknown_ends = 0  # episodes read of which it is not known whether they ran out of time
        self.longer_videos: list[tuple[Path, int, int]] = []  # of one episode: file, its images, its rows
        self._videos: dict[str, tuple[Path, Mp4Reader]] = {}
        self._tasks = task_names(info)

    def close(self) -> None:
        for _, video in self._videos.values():
            video.close()

    @property
    def features(self) -> Mapping[str, LeRobotFeature]:
        return self._info.features

    @property
    def has_video(self) -> bool:
        return any(each.dtype == "video" for each in self._info.pictures)

    def observations(self) -> dict[str, str]:
        """Observation -> feature, for every feature that is an observation."""
        names = [name for name in self._info.features if name.startswith(layout.OBS)]
        return {layout.obs_key(name): name for name in names}

    def require(self, names: Mapping[str, str]) -> None:
        """Raise DataError for a feature that the dataset does not have."""
        require_names(self._root, names.values(), self._info.features, "feature")

    def foreign(self, names: Mapping[str, str]) -> ForeignSpec:
        """Shapes, extremes of actions and rate."""
        features = self._info.features
        action = self._action()
        places = episode_files(self._info)
        tables = dict.fromkeys(place.table for place in places)
        low, high = extremes(self._actions(path, action) for path in tables)
        obs = {
            key: (features[name].shape, "uint8" if features[name].is_picture else features[name].dtype)
            for key, name in names.items()
        }
        longest = max(place.length for place in places)
        return ForeignSpec(self._info.robot, obs, low, high, longest, self._info.fps)

    def _actions(self, path: Path, action: LeRobotFeature) -> Float32[ndarray, "n a"]:
        """Actions of all episodes in one table; its images are not read."""
        return from_arrow(read_table(path, ["action"])["action"], action, str(path)).astype("f4")

    def read(
        self, place: EpisodeFiles, names: Mapping[str, str], stamps: tuple[str, ...], where: str
    ) -> EpisodeRows:
        """Arrays of one episode."""
        table = self._rows(place, where)
        features = self._info.features
        n = place.length
        obs = {key: self._observation(features[name], table, place, where) for key, name in names.items()}
        read = {
            name: from_arrow(table[name], features[name], where)
            for name in features
            if name in table.column_names and not features[name].is_picture
        }
        action = from_arrow(column_of(table, "action", where), self._action(), where)
        reward = next((read[name] for name in _REWARDS if name in read), np.zeros(n))
        human = next((read[name] for name in _HUMAN if name in read), np.zeros(n))
        success = read.get("next.success")
        task = place.tasks[0] if place.tasks else self._task(read)
        return EpisodeRows(
            obs,
            np.asarray(action, dtype=np.float32),
            np.asarray(reward, dtype=np.float32).reshape(n),
            self._terminated(read, n),
            np.asarray(human).reshape(n) > 0,
            {name: read[f"stamps.{name}"].reshape(n) for name in stamps},
            EpisodeMeta(complete=True, task=task, success=None if success is None else bool(success.any())),
        )

    def _terminated(self, read: Mapping[str, Shaped[ndarray, "n ..."]], n: int) -> Bool[ndarray, " n"]:
        """next.terminated, or what next.done, next.truncated and next.success tell of it."""
        flags = {name: np.asarray(read[name]).reshape(n) > 0 for name in _ENDS if name in read}
        if "next.terminated" in flags:
            return flags["next.terminated"]
        done = flags.get("next.done", np.zeros(n, dtype=bool))
        success = bool(flags["next.success"][-1]) if "next.success" in flags else None
        found = without_unknown_end(done, success, flags.get("next.truncated"))
        self.unknown_ends += "next.truncated" not in flags and bool(done[-1] and not found[-1])
        return found

    def _observation(
        self, feature: LeRobotFeature, table: Any, place: EpisodeFiles, where: str
    ) -> Shaped[ndarray, "n ..."]:
        if feature.dtype == "video":
            return self._video(feature, place)
        column = column_of(table, feature.name, where)
        if feature.dtype == "image":
            return np.stack(list(_images(column, feature, where)))
        return from_arrow(column, feature, where)

    def _video(self, feature: LeRobotFeature, place: EpisodeFiles) -> UInt8[ndarray, "n h w 3"]:
        path, start_s = place.videos[feature.name]
        held = self._videos.get(feature.name)
        if held is None or held[0] != path:
            if held is not None:
                held[1].close()
            held = path, Mp4Reader(path, self._info.fps)
            self._videos[feature.name] = held
            if place.first is None and held[1].frames > place.length:
                self.longer_videos.append((path, held[1].frames, place.length))
        return held[1].read(round(start_s * self._info.fps), place.length, feature.shape)

    def _rows(self, place: EpisodeFiles, where: str) -> Any:
        """Rows of an episode in its table, checked by their numbers."""
        table, n = self._table(place.table), place.length
        if place.first is None and len(table) != n:
            raise DataError(
                f"{where} has {n} frames by its list, and {len(table)} in its table. Copy it again."
            )
        if place.first is None:
            numbered = "frame_index" in table.column_names  # some programs leave it out
            rows, numbers = table, _numbers(table, "frame_index", where) if numbered else np.arange(n)
        else:
            index = _numbers(table, "index", where)
            start = int(np.searchsorted(index, place.first))
            rows, numbers = table.slice(start, n), index[start : start + n]
        first = place.first or 0
        if len(numbers) != n or not np.array_equal(numbers, first + np.arange(len(numbers))):
            raise DataError(f"{where}: rows {first} to {first + n - 1} are not in its table. Copy it again.")
        return rows

    def _table(self, path: Path) -> Any:
        if path not in self._tables:
            self._tables.clear()  # one file of about 100 MB at a time
            self._tables[path] = read_table(path, None)
        return self._tables[path]

    def _action(self) -> LeRobotFeature:
        feature = self._info.features.get("action")
        if feature is None or feature.is_picture or len(feature.shape) != 1:
            raise DataError(f"{self._root} has no feature 'action' with one number per dimension.")
        return feature

    def _task(self, read: Mapping[str, Shaped[ndarray, "n ..."]]) -> str:
        numbers = read.get("task_index", np.zeros(1))
        return self._tasks.get(int(numbers.reshape(-1)[0]), "")


def _with_scalars(env: EnvSpec, rows: EpisodeRows) -> EpisodeRows:
    """`rows` with the shape () of observations that the format keeps as (1,)."""
    single = {k for k, v in rows.obs.items() if k in env.obs and not env.obs[k].shape and v.shape[1:] == (1,)}
    return replace(rows, obs={k: v.reshape(-1) if k in single else v for k, v in rows.obs.items()})


def _labelled(rows: EpisodeRows, known: EpisodeMeta | None, task: str) -> EpisodeRows:
    """`rows` with the labels of the export, which tell an unknown success from a failure; a success that
    another program has changed stays.
    """
    if known is not None and not _relabelled(rows, known):
        rows = replace(rows, labels=replace(rows.labels, success=known.success))
    return labelled(rows, known, task)


def _longer_videos(root: Path, videos: list[tuple[Path, int, int]]) -> str:
    """Sentence on videos of single episodes with more images than rows. LeRobot, too, uses only those of the
    rows: it looks up an image by the time of its row.
    """
    path, images, rows = videos[0]
    count = counted(len(videos), "video has", "videos have")
    return (
        f"{count} more images than the episode has rows, such as {path.relative_to(root)} with {images} for "
        f"{rows}. Those after the last row were left out; if the video began before the rows, images and "
        "actions do not belong together: look at an episode by robo-rl data show."
    )


def _relabelled(rows: EpisodeRows, known: EpisodeMeta) -> bool:
    """True if the dataset states another success than the export did; false stands for unknown, too."""
    stated = rows.labels.success
    return stated is not None and stated != bool(known.success)


def _numbers(table: Any, name: str, where: str) -> Shaped[ndarray, " n"]:
    """Column of whole numbers."""
    feature = LeRobotFeature(name, "int64", (1,))
    return from_arrow(column_of(table, name, where), feature, where).reshape(-1)


def _images(column: Any, feature: LeRobotFeature, where: str) -> Iterator[UInt8[ndarray, "h w 3"]]:
    for i, entry in enumerate(column.to_pylist()):
        data = entry.get("bytes") if isinstance(entry, dict) else None
        if not isinstance(data, bytes):
            raise DataError(f"{where}: image {i} of '{feature.name}' is not in the table. Copy it again.")
        yield decode_picture(data, feature.shape, f"{where}: image {i} of '{feature.name}'")
