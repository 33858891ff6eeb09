"""Export of a dataset as LeRobotDataset v3: parquet tables, MP4 files, statistics, tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped, UInt8
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.formats.lerobot import layout
from robo_rl.data.formats.lerobot.columns import picture_statistics, statistics, to_arrow
from robo_rl.data.formats.lerobot.video import Mp4Writer
from robo_rl.data.formats.output import new_output
from robo_rl.data.formats.pictures import encode_png
from robo_rl.data.formats.rows import EpisodeRows, checksum, raw_bytes, rows_of, sidecar

STATISTICS_IMAGES = 100  # images per episode of which statistics are taken
NO_TASK = ""
Rows = dict[str, Shaped[ndarray, "n ..."]]
Progress = Callable[[int, int], None] | None


def export_lerobot(
    path: str | Path, out: str | Path, *, video: bool = True, crf: int = 20, progress: Progress = None
) -> int:
    """Write a dataset as LeRobotDataset v3; returns the number of episodes.

    video: images as H.264 video (lossy, `crf`: 0 best to 51), else as PNG in the tables, exact. The
    observation after the last action, labels and contract are in meta/robo_rl*, which LeRobot ignores.
    Raises DataError if the dataset is empty or `out` exists.
    """
    store = EpisodeStore(path)
    if not len(store):
        raise DataError(f"{path} holds no episodes to export.")
    with new_output(out, 0 if video else raw_bytes(store) // 4) as partial, ExitStack() as stack:
        writer = _Writer(partial, store, video, crf, stack)
        for i, episode in enumerate(store):
            writer.add(rows_of(episode))
            if progress is not None:
                progress(i + 1, len(store))
        stack.close()  # footers of tables and videos
        writer.finish()
    return len(store)


class _Writer:
    """The files of one export. Tables and videos of many episodes are split at LeRobot's usual sizes."""

    def __init__(self, root: Path, store: EpisodeStore, video: bool, crf: int, stack: ExitStack) -> None:
        self._root, self._store, self._meta, self._crf, self._stack = root, store, store.meta, crf, stack
        self._fps = store.spec.control_hz
        self._kind = "video" if video else "image"
        self._features = layout.own_features(store.meta, self._kind)
        self._names = {layout.feature_name(key, spec): key for key, spec in store.spec.obs.items()}
        self._cameras = [name for name, entry in self._features.items() if entry["dtype"] == self._kind]
        self._tasks: dict[str, int] = {}
        self._rows: list[dict[str, Any]] = []
        self._checksums: list[int] = []
        self._frames = 0
        self._table: Any = None
        self._table_bytes, self._table_file = 0, -1
        self._videos: dict[str, Mp4Writer] = {}
        self._video_files = dict.fromkeys(self._cameras, -1)
        self._final: dict[str, list[Any]] = {}
        self._small: dict[str, list[Shaped[ndarray, "n ..."]]] = {}
        self._pixels: dict[str, list[Shaped[ndarray, "n h w c"]]] = {name: [] for name in self._cameras}

    def add(self, rows: EpisodeRows) -> None:
        """Append one episode to tables and videos."""
        self._checksums.append(checksum(rows, images=self._kind == "image"))
        task = self._tasks.setdefault(rows.labels.task or NO_TASK, len(self._tasks))
        columns = self._columns(rows, task)
        pictures = {name: rows.obs[self._names[name]] for name in self._cameras}
        entry: dict[str, Any] = {
            "episode_index": len(self._rows),
            "tasks": [rows.labels.task or NO_TASK],
            "length": rows.frames,
            **self._add_rows(columns, pictures, rows.frames),
            "dataset_from_index": self._frames,
            "dataset_to_index": self._frames + rows.frames,
        }
        for name, images in pictures.items():
            if self._kind == "video":
                entry |= self._add_video(name, images[: rows.frames])
        found = {name: statistics(values) for name, values in columns.items()}
        for name, images in pictures.items():
            chosen = _sample(images[: rows.frames])
            found[name] = picture_statistics(chosen, rows.frames)
            self._pixels[name].append(chosen[:: max(1, len(chosen) // 10)])
        entry |= {f"stats/{name}/{key}": each for name, of in found.items() for key, each in of.items()}
        entry |= {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
        for name, values in columns.items():
            self._small.setdefault(name, []).append(values)
        self._keep_final(rows)
        self._rows.append(entry)
        self._frames += rows.frames

    def _columns(self, rows: EpisodeRows, task: int) -> Rows:
        """Columns of the data table, images left out."""
        n = rows.frames
        found: Rows = {
            name: rows.obs[key][:n] for name, key in self._names.items() if name not in self._cameras
        }
        last = np.arange(n) == n - 1
        found |= {"action": rows.action, "next.reward": rows.reward, "next.done": last}
        found |= {"next.success": last & bool(rows.labels.success), "intervention": rows.intervention}
        found["next.terminated"] = rows.terminated
        found |= {f"stamps.{name}": column for name, column in rows.stamps.items()}
        found["timestamp"] = (np.arange(n) / self._fps).astype(np.float32)
        found["frame_index"] = np.arange(n)
        found["episode_index"] = np.full(n, len(self._rows))
        found["index"] = self._frames + np.arange(n)
        found["task_index"] = np.full(n, task)
        return found

    def _add_rows(
        self, columns: Rows, pictures: dict[str, UInt8[ndarray, "rows h w 3"]], frames: int
    ) -> dict[str, int]:
        pa, pq = layout.pyarrow()
        arrays = {name: to_arrow(values) for name, values in columns.items()}
        if self._kind == "image":
            arrays |= {name: _png_column(images[:frames]) for name, images in pictures.items()}
        table = pa.table({name: arrays[name] for name in self._features if name in arrays})
        if self._table is None or self._table_bytes > layout.DATA_MB * 2**20:
            if self._table is not None:
                self._table.close()
            self._table_file, self._table_bytes = self._table_file + 1, 0
            path = self._root / layout.DATA.format(**_place(self._table_file))
            path.parent.mkdir(parents=True, exist_ok=True)
            schema = table.schema.with_metadata({"huggingface": _hugging_face(self._features, arrays)})
            self._table = self._stack.enter_context(pq.ParquetWriter(path, schema, compression="snappy"))
        self._table.write_table(table.replace_schema_metadata(self._table.schema.metadata))
        self._table_bytes += table.nbytes
        return {f"data/{key}": value for key, value in _place(self._table_file).items()}

    def _add_video(self, name: str, images: UInt8[ndarray, "n h w 3"]) -> dict[str, float]:
        video = self._videos.get(name)
        if video is None or video.bytes > layout.VIDEO_MB * 2**20:
            self._video_files[name] += 1
            path = self._root / layout.VIDEO.format(video_key=name, **_place(self._video_files[name]))
            video = self._stack.enter_context(
                Mp4Writer(path, self._fps, images.shape[1], images.shape[2], self._crf)
            )
            self._videos[name] = video
        start = video.frames
        for image in images:
            video.add(image)
        place: dict[str, float] = {**_place(self._video_files[name])}
        place |= {"from_timestamp": start / self._fps, "to_timestamp": video.frames / self._fps}
        return {f"videos/{name}/{key}": value for key, value in place.items()}

    def _keep_final(self, rows: EpisodeRows) -> None:
        """Remember the observation after the last action: bytes of the array, or PNG for images."""
        last = rows.final_obs()
        if not last:
            return
        self._final.setdefault("episode_index", []).append(len(self._rows))
        for name, key in self._names.items():
            data = encode_png(last[key]) if name in self._cameras else np.ascontiguousarray(last[key])
            self._final.setdefault(name, []).append(data.tobytes())

    def finish(self) -> None:
        """Write the metadata."""
        pa, pq = layout.pyarrow()
        (self._root / layout.EPISODES).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(self._rows), self._root / layout.EPISODES)
        pq.write_table(self._task_table(), self._root / layout.TASKS)
        if self._final:
            pq.write_table(pa.table(self._final), self._root / layout.FINAL)
        found = {name: statistics(np.concatenate(values)) for name, values in self._small.items()}
        for name, images in self._pixels.items():
            found[name] = picture_statistics(np.concatenate(images), self._frames)
        layout.write_json_plain(self._root / layout.STATS, found)
        layout.write_json_plain(self._root / layout.OWN, sidecar(self._store, self._checksums))
        layout.write_json_plain(self._root / layout.INFO, self._info())

    def _task_table(self) -> Any:
        """Tasks as pandas writes them with the task as the index, without pandas."""
        pa, _ = layout.pyarrow()
        table = pa.table({"task_index": list(self._tasks.values()), "__index_level_0__": list(self._tasks)})
        return table.replace_schema_metadata({"pandas": _PANDAS_TASKS})

    def _info(self) -> dict[str, Any]:
        fps = self._fps
        features = {name: dict(entry) for name, entry in self._features.items()}
        for name in self._cameras if self._kind == "video" else ():
            height, width, channels = features[name]["shape"]
            even = height % 2 == 0 and width % 2 == 0
            features[name]["info"] = {
                "video.height": height, "video.width": width, "video.channels": channels,
                "video.codec": "h264", "video.pix_fmt": "yuv420p" if even else "yuv444p",
                "video.is_depth_map": False, "video.fps": fps, "has_audio": False,
            }  # fmt: skip
        return {
            "codebase_version": layout.VERSION,
            "robot_type": self._store.spec.name.rpartition("/")[2],
            "total_episodes": len(self._rows),
            "total_frames": self._frames,
            "total_tasks": len(self._tasks),
            "chunks_size": layout.CHUNK_FILES,
            "data_files_size_in_mb": layout.DATA_MB,
            "video_files_size_in_mb": layout.VIDEO_MB,
            "fps": int(fps) if float(fps).is_integer() else fps,
            "splits": {"train": f"0:{len(self._rows)}"},
            "data_path": layout.DATA,
            "video_path": layout.VIDEO if self._kind == "video" else None,
            "features": features,
        }


def _sample(images: UInt8[ndarray, "n h w 3"]) -> UInt8[ndarray, "k h w 3"]:
    """At most `STATISTICS_IMAGES` images, evenly spaced, with every fourth pixel of large ones."""
    chosen = images[:: max(1, -(-len(images) // STATISTICS_IMAGES))]
    step = max(1, min(images.shape[1:3]) // 64)
    return np.asarray(chosen[:, ::step, ::step])


def _place(number: int) -> dict[str, int]:
    return {"chunk_index": number // layout.CHUNK_FILES, "file_index": number % layout.CHUNK_FILES}


def _png_column(images: UInt8[ndarray, "n h w 3"]) -> Any:
    """Images as the datasets library stores them: the file's bytes and a name."""
    pa, _ = layout.pyarrow()
    data = pa.array([encode_png(image).tobytes() for image in images], pa.binary())
    names = pa.array([f"frame-{i:06d}.png" for i in range(len(images))])
    return pa.StructArray.from_arrays([data, names], ["bytes", "path"])


def _hugging_face(features: dict[str, dict[str, Any]], there: dict[str, Any]) -> str:
    """Types of the columns for the datasets library."""
    found = {name: _hugging_face_type(entry) for name, entry in features.items() if name in there}
    return json.dumps({"info": {"features": found}})


def _hugging_face_type(entry: dict[str, Any]) -> dict[str, Any]:
    shape, dtype = entry["shape"], entry["dtype"]
    if dtype == "image":
        return {"_type": "Image"}
    if shape == [1]:
        return {"dtype": dtype, "_type": "Value"}
    if len(shape) == 1:
        return {"feature": {"dtype": dtype, "_type": "Value"}, "length": shape[0], "_type": "List"}
    return {"shape": shape, "dtype": dtype, "_type": f"Array{len(shape)}D"}


_INDEX = {"name": None, "field_name": "__index_level_0__", "pandas_type": "unicode"}
_PANDAS_TASKS = json.dumps({
    "index_columns": ["__index_level_0__"],
    "column_indexes": [
        {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object",
         "metadata": {"encoding": "UTF-8"}},
    ],
    "columns": [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64",
         "metadata": None},
        {**_INDEX, "numpy_type": "object", "metadata": None},
    ],
    "creator": {"library": "robo-rl"},
    "pandas_version": "2.0.0",
})  # fmt: skip
