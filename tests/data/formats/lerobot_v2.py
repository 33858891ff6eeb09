"""LeRobot datasets of version 2.0 and 2.1 as LeRobot wrote them until 0.3: files for each episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.data.formats.lerobot.layout import feature_name, own_features
from robo_rl.data.formats.lerobot.video import Mp4Writer
from robo_rl.data.formats.pictures import encode_png
from robo_rl.data.formats.rows import EpisodeRows, rows_of
from robo_rl.data.store import EpisodeStore

DATA = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
VIDEO = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"


def write_v2(
    dataset: Path,
    out: Path,
    version: str = "v2.1",
    *,
    pictures: str = "video",
    chunk: int = 2,
    paths: tuple[str, str] = (DATA, VIDEO),
    numbers: Sequence[int] | None = None,
) -> Path:
    """Write a dataset as LeRobot did. pictures: "video" or "image". chunk: episodes in a folder. numbers: of
    the episodes; None: from 0 on.
    """
    store = EpisodeStore(dataset)
    features = own_features(store.meta, pictures)
    for name in store.meta.stamps:
        features[f"stamps.{name}"]["dtype"] = "int64"
    numbers = range(len(store)) if numbers is None else numbers
    tasks = list(dict.fromkeys(episode.meta.task for episode in store))
    episodes, stats, first = [], [], 0
    for number, episode in zip(numbers, store, strict=True):
        rows = rows_of(episode)
        task = tasks.index(episode.meta.task)
        columns = {"index": first + np.arange(rows.frames), "task_index": np.full(rows.frames, task)}
        columns |= _columns(store, rows, number)
        place = {"episode_chunk": number // chunk, "episode_index": number}
        images = {n: c for n, c in columns.items() if features[n]["dtype"] == pictures}
        if pictures == "video":
            for name in images:
                _write_video(out / paths[1].format(video_key=name, **place), columns.pop(name), store)
        _write_table(out / paths[0].format(**place), columns, images.keys() & columns.keys())
        episodes.append({"episode_index": number, "tasks": [episode.meta.task], "length": rows.frames})
        of = {n: {"min": c.min(0).tolist(), "max": c.max(0).tolist()} for n, c in columns.items()}
        stats.append({"episode_index": number, "stats": of})
        first += rows.frames
    info = {
        "codebase_version": version,
        "robot_type": store.spec.name.rpartition("/")[2],
        "total_episodes": len(store),
        "total_frames": first,
        "total_tasks": len(tasks),
        "total_videos": len(store) * sum(each["dtype"] == "video" for each in features.values()),
        "total_chunks": 1 + max(numbers) // chunk,
        "chunks_size": chunk,
        "fps": int(store.spec.control_hz),
        "splits": {"train": f"0:{len(store)}"},
        "data_path": paths[0],
        "video_path": paths[1] if pictures == "video" else None,
        "features": features,
    }
    (out / "meta").mkdir(parents=True, exist_ok=True)
    (out / "meta/info.json").write_text(json.dumps(info, indent=4))
    _write_lines(out / "meta/episodes.jsonl", episodes)
    _write_lines(out / "meta/tasks.jsonl", [{"task_index": i, "task": task} for i, task in enumerate(tasks)])
    if version == "v2.1":
        _write_lines(out / "meta/episodes_stats.jsonl", stats)
    else:
        (out / "meta/stats.json").write_text(json.dumps(stats[0]["stats"]))
    return out


def _columns(store: EpisodeStore, rows: EpisodeRows, number: int) -> dict[str, ndarray]:
    n = rows.frames
    last = np.arange(n) == n - 1
    found = {feature_name(key, spec): rows.obs[key][:n] for key, spec in store.spec.obs.items()}
    found |= {"action": rows.action, "next.reward": rows.reward, "next.done": last}
    found |= {"next.success": last & bool(rows.labels.success), "intervention": rows.intervention}
    found |= {"next.terminated": rows.terminated}
    found |= {f"stamps.{name}": column for name, column in rows.stamps.items()}
    found |= {"timestamp": (np.arange(n) / store.spec.control_hz).astype("f4"), "frame_index": np.arange(n)}
    return found | {"episode_index": np.full(n, number)}


def _write_table(path: Path, columns: dict[str, ndarray], images: set[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def column(name: str, values: ndarray) -> Any:
        if name in images:
            files = [
                {"bytes": encode_png(image).tobytes(), "path": f"{i}.png"} for i, image in enumerate(values)
            ]
            return pa.array(files)
        kind = pa.from_numpy_dtype(values.dtype)
        return pa.array(values.tolist(), kind if values.ndim == 1 else pa.list_(kind, values.shape[1]))

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: column(name, values) for name, values in columns.items()}), path)


def _write_video(path: Path, images: ndarray, store: EpisodeStore) -> None:
    with Mp4Writer(path, store.spec.control_hz, images.shape[1], images.shape[2], 20) as video:
        for image in images:
            video.add(image)


def _write_lines(path: Path, entries: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
