"""Export for the Rerun viewer: one .rrd file per episode with images, states, actions and labels over
time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError, MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import Shaped
from robo_rl.core.spec import sense_of
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.schema import DatasetMeta
from robo_rl.data.formats.output import new_output
from robo_rl.data.formats.rows import EpisodeRows, raw_bytes, rows_of

JPEG_QUALITY = 90
Progress = Callable[[int, int], None] | None


def export_rerun(path: str | Path, out: str | Path, progress: Progress = None) -> int:
    """Write a folder with one .rrd per episode; returns their number. For looking: it cannot be imported.

    Images are JPEG. Raises DataError if the dataset is empty.
    """
    store = EpisodeStore(path)
    if not len(store):
        raise DataError(f"{path} holds no episodes to export.")
    rerun = _rerun()
    with new_output(out, raw_bytes(store) // 2) as partial:
        partial.mkdir()
        for i, episode in enumerate(store):
            name = f"episode_{episode.number:06d}"
            program = re.sub(r"[^A-Za-z0-9_-]", "-", store.spec.name)  # Rerun renames others, and warns
            recording = rerun.RecordingStream(program, recording_id=f"{store.path.name}-{name}")
            recording.save(partial / f"{name}.rrd")
            _log(rerun, recording, rows_of(episode), store.meta)
            recording.flush()
            recording.disconnect()
            if progress is not None:
                progress(i + 1, len(store))
    return len(store)


def _log(rerun: Any, recording: Any, rows: EpisodeRows, meta: DatasetMeta) -> None:
    label = {True: "success", False: "failure", None: "not labelled"}[rows.labels.success]
    note = f"{rows.labels.task or 'no task'}: {label}, {rows.frames} frames"
    recording.log("episode", rerun.TextDocument(note), static=True)
    for i in range(rows.frames + rows.has_final_obs):
        recording.set_time("frame", sequence=i)
        recording.set_time("time", duration=i / meta.env.control_hz)
        for key, values in rows.obs.items():
            _log_value(rerun, recording, key, sense_of(key, meta.env.obs[key]), values[i])
        if i < rows.frames:
            recording.log("action", rerun.Scalars(rows.action[i]))
            recording.log("reward", rerun.Scalars([rows.reward[i]]))
            recording.log("intervention", rerun.Scalars([float(rows.intervention[i])]))


def _log_value(rerun: Any, recording: Any, key: str, sense: str, value: Shaped[ndarray, "..."]) -> None:
    path = f"observation/{key.replace('.', '/')}"
    if sense == "image":
        recording.log(path, rerun.Image(value).compress(jpeg_quality=JPEG_QUALITY))
    elif sense == "segmentation":
        recording.log(path, rerun.SegmentationImage(value[..., 0]))
    elif sense == "depth" and value.ndim == 2:
        recording.log(path, rerun.DepthImage(value.astype(np.float32), meter=1.0))
    elif sense == "points" and value.ndim == 2 and value.shape[1] == 3:
        recording.log(path, rerun.Points3D(value))
    elif value.ndim <= 1:
        recording.log(path, rerun.Scalars(np.atleast_1d(value).astype(np.float64)))
    else:
        recording.log(path, rerun.Tensor(value))


def _rerun() -> Any:
    try:
        import rerun
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Exports for Rerun need the package 'rerun-sdk'. Run: {pip_install('rerun')}"
        ) from error
    return rerun
