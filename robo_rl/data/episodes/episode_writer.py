"""Recording of one episode: frames are appended as they arrive and committed, or salvaged after a kill."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Any, SupportsFloat

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import fsync_dir
from robo_rl.core.files.lock import FolderLock
from robo_rl.core.shapes import Float, Shaped
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data import jpeg
from robo_rl.data.episodes.commit import (
    DISCARDED,
    fsync,
    publish,
    seal,
    staging_lock,
    sync_parents,
    write_json_file,
)
from robo_rl.data.episodes.disk import how_to_salvage, report_full_disk, require_free
from robo_rl.data.episodes.schema import (
    JPEG_ENDS,
    NO_STAMP,
    RECORDING_JSON,
    STAGING,
    STAMPS,
    ArrayMeta,
    Column,
    DatasetMeta,
    EpisodeMeta,
)
from robo_rl.data.episodes.shard import PayloadFile, row_bytes, shard_name
from robo_rl.data.episodes.whole_numbers import require_in_range

Obs = Mapping[str, ArrayLike]
Flag = bool | np.bool_  # simulators return numpy scalars
Rows = dict[str, Shaped[ndarray, "..."]]


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Minimum free space and durability of a recorder.

    No episode starts with less than `min_free_bytes` free. One in progress stops at a quarter of that, so
    that it can still be committed. With `durable`, a commit waits until the disk holds the episode (fsync).
    Without it, a power loss may lose the episode, a kill cannot (for imports and simulation).
    """

    min_free_bytes: int = 2**30
    durable: bool = True


class EpisodeWriter:
    """One running episode: `add` frames, then `commit` or `discard`.

    If the `with` block raises, also on Ctrl-C, all complete frames remain in the staging directory, where
    `recover` finds them.
    """

    def __init__(
        self, root: Path, dataset: DatasetMeta, meta: EpisodeMeta, options: RecordOptions, lock: FolderLock
    ) -> None:
        self.frames = 0
        self._lock = lock  # the dataset stays locked while an episode is recorded
        self._root, self._dataset, self._meta, self._options = root, dataset, meta, options
        self._columns = dataset.columns()
        self._directory = root / STAGING / uuid.uuid4().hex
        self._files: dict[str, PayloadFile] = {}
        self._begun: dict[str, tuple[int, int]] = {}  # where the frame that is being written began
        self._number: int | None = None
        self._sealing = self._done = False
        self._resources = ExitStack()
        self._resources.enter_context(staging_lock(root, exclusive=False))
        try:
            with report_full_disk(root, "a new episode"):
                self._open_files()
        except BaseException:
            self.close()
            raise

    def _open_files(self) -> None:
        self._directory.mkdir()
        recording = self._directory / RECORDING_JSON
        write_json_file(recording, self._meta.to_json())
        if (
            self._options.durable
        ):  # frames that survive a power loss can then be salvaged; they are not synced
            fsync(recording)
            fsync_dir(self._directory)
            fsync_dir(self._directory.parent)
        for column in self._columns:
            (self._directory / column.name).mkdir()
            file = PayloadFile(self._directory / column.name / shard_name(1 + len(column.row_shape)))
            self._resources.callback(file.close)
            self._files[column.name] = file

    def add(
        self,
        obs: Obs,
        action: ArrayLike,
        *,
        reward: SupportsFloat = 0.0,
        terminated: Flag | SupportsFloat = False,
        intervention: Flag | SupportsFloat = False,
        stamps: Mapping[str, int] | None = None,
    ) -> None:
        """Append one frame: the observation, and the action that was executed from it, in physical units.

        stamps: time stamps [ns] by column; missing ones are stored as -1, unknown. Raises DataError for
        missing or unknown keys, wrong shapes and types, a reward that is no number, and flags other than
        True, False, 1 and 0, and DiskFullError when the disk fills. The frame is then not stored at all; the
        frames before it can be committed.
        """
        self._require_running()
        if self._sealing:
            raise DataError("The commit of this episode has begun: it takes no more frames. Commit it again.")
        self._take_back()
        require_free(self._root, self._options.min_free_bytes // 4)
        rows = self._obs_rows(obs)
        rows["reward"] = _number("reward", reward)
        for column, value in (("terminated", terminated), ("intervention", intervention)):
            rows[column] = np.asarray(_flag(column, value))
        rows["action"] = _row(self._column("action"), action)
        if self._dataset.stamps:
            rows[STAMPS] = self._stamps(stamps or {})
        self._append(rows)
        self.frames += 1

    @property
    def info(self) -> dict[str, Any]:
        """Further facts about this episode."""
        return dict(self._meta.info)

    def annotate(self, info: Mapping[str, Any] | None = None, *, task: str | None = None) -> None:
        """Replace the further facts, the task, or both, also for an episode that is salvaged. Raises
        DiskFullError.
        """
        self._require_running()
        self._meta = replace(
            self._meta,
            info=self._meta.info if info is None else dict(info),
            task=self._meta.task if task is None else task,
        )
        draft = self._directory / f".{RECORDING_JSON}"
        with report_full_disk(self._root, "a note on the episode"):
            write_json_file(draft, self._meta.to_json())
            draft.replace(self._directory / RECORDING_JSON)

    def commit(
        self,
        *,
        success: Flag | SupportsFloat | None = None,
        final_obs: Obs | None = None,
        complete: bool = True,
        task: str | None = None,
    ) -> int:
        """Make the episode durable under the next number, which is returned.

        complete: False for an episode whose recording was interrupted. task: replaces that of the start.
        final_obs: the observation after the last action, with which every frame is a complete transition.
        Raises DataError for an episode without frames and for a `success` other than True, False, 1, 0 and
        None, and DiskFullError when the disk is full: free some space and commit again.
        """
        self._require_running()
        label = _label(success)
        if self.frames == 0:
            raise DataError("An episode without frames cannot be committed. Discard it.")
        with report_full_disk(self._root, "the end of the episode", how_to_salvage(self._root)):
            if self._number is None:  # otherwise an earlier attempt reached the rename
                self._seal(label, final_obs, complete, task)
                self._number = publish(self._root, self._directory)
            if self._options.durable:
                sync_parents(self._root)
        self.close()
        return self._number

    def _seal(self, success: bool | None, final_obs: Obs | None, complete: bool, task: str | None) -> None:
        self._sealing = True
        self._settle()
        if final_obs is not None:
            self._append(self._obs_rows(final_obs, "final_obs"))
        meta = replace(
            self._meta,
            frames=self.frames,
            final_obs=final_obs is not None,
            complete=complete,
            success=success,
            task=self._meta.task if task is None else task,
            arrays=self._arrays(),
        )
        seal(self._directory, meta, self._files, durable=self._options.durable)

    def discard(self) -> None:
        """Delete the episode."""
        self._require_running()
        doomed = self._directory.rename(self._directory.with_suffix(DISCARDED))
        rmtree(doomed)
        self.close()

    def close(self) -> None:
        """Stop recording and leave the frames to `recover`. Does nothing after a commit or discard."""
        self._done = True
        self._resources.close()

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        forgotten = not self._done
        self.close()
        if forgotten and kind is None:
            raise DataError(
                f"The episode of {counted(self.frames, 'frame')} was neither committed nor discarded. It is "
                f"kept in {self._directory}; call commit() or discard() before the end of the with block, "
                f"and recover this one: {command('data validate', path=self._root, recover=True)}"
            )

    def _require_running(self) -> None:
        if self._done:
            raise DataError("This episode has ended already. Start another one with DatasetWriter.episode().")

    def _column(self, name: str) -> Column:
        return next(column for column in self._columns if column.name == name)

    def _obs_rows(self, obs: Obs, what: str = "The observation") -> Rows:
        specs = self._dataset.env.obs
        if obs.keys() != specs.keys():
            raise DataError(
                f"{what} has the keys {sorted(obs)}, the dataset stores {sorted(specs)}. "
                "Give exactly those, or create a dataset with another EnvSpec."
            )
        rows = {
            key: _row(Column(key, spec.dtype, tuple(spec.shape), "obs"), obs[key])
            for key, spec in specs.items()
        }
        if self._dataset.jpeg_keys:
            for key in self._dataset.jpeg_keys:
                rows[key] = jpeg.encode(rows[key], self._dataset.jpeg_quality)
            ends = [self._files[key].size + len(rows[key]) for key in self._dataset.jpeg_keys]
            rows[JPEG_ENDS] = np.array(ends, dtype="int64")
        return rows

    def _stamps(self, stamps: Mapping[str, int]) -> Shaped[ndarray, " columns"]:
        if unknown := stamps.keys() - set(self._dataset.stamps):
            raise DataError(
                f"Unknown stamps {sorted(unknown)}. The dataset has {list(self._dataset.stamps)}."
            )
        return np.array([stamps.get(name, NO_STAMP) for name in self._dataset.stamps], dtype="int64")

    def _append(self, rows: Rows) -> None:
        """Append all rows or none: after an error the files end where the frame began, at the latest when the
        next frame is added.
        """
        self._begun = {name: (self._files[name].size, self._files[name].crc) for name in rows}
        try:
            with report_full_disk(self._root, f"frame {self.frames}", how_to_salvage(self._root)):
                for column in self._columns:
                    if column.name in rows:
                        self._files[column.name].append(rows[column.name])
        except BaseException:
            with suppress(OSError):
                self._take_back()
            raise
        self._begun = {}

    def _take_back(self) -> None:
        """Cut the columns to where a frame began that was not completed. Raises OSError while one cannot be
        cut: a frame after it would put the columns out of step.
        """
        failed = None
        for name, mark in list(self._begun.items()):
            try:
                self._files[name].rollback(mark)
                del self._begun[name]
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def _settle(self) -> None:
        """Truncate the files to the last complete frame, after an interrupted frame or a failed commit."""
        for column in self._columns:
            if column.role != "blob":
                self._files[column.name].settle(self.frames * row_bytes(column.dtype, column.row_shape))
        for key, end in zip(self._dataset.jpeg_keys, self._last_ends(), strict=False):
            self._files[key].settle(end)

    def _last_ends(self) -> list[int]:
        if not self._dataset.jpeg_keys:
            return []
        ends = np.fromfile(
            self._files[JPEG_ENDS].path, dtype="int64", count=self.frames * len(self._dataset.jpeg_keys)
        )
        return [int(end) for end in ends[-len(self._dataset.jpeg_keys) :]]

    def _arrays(self) -> dict[str, ArrayMeta]:
        return {c.name: array_meta(c, self._files[c.name]) for c in self._columns}


def _label(success: object) -> bool | None:
    """A label of success. Raises DataError for anything but a flag, 0, 1 or None: bool("no") is True."""
    if success is None or _is_flag(success):
        return None if success is None else bool(success)
    raise DataError(f"success={success!r} is no label of an episode: give True, False, or None if unknown.")


def _flag(name: str, value: object) -> bool:
    """A flag of a frame. Raises DataError for anything but True, False, 0 and 1."""
    if _is_flag(value):
        return bool(value)
    raise DataError(f"{name}={value!r} is no flag of a frame: give True or False.")


def _is_flag(value: object) -> bool:
    return isinstance(value, bool | np.bool_) or (isinstance(value, Real) and value in (0, 1))


def _number(name: str, value: SupportsFloat) -> Float[ndarray, ""]:
    try:
        return np.asarray(float(value), dtype="float32")
    except (TypeError, ValueError):
        raise DataError(f"{name}={value!r} is no number.") from None


def array_meta(column: Column, file: PayloadFile) -> ArrayMeta:
    """Entry of episode.json for a settled payload."""
    rows = file.size // row_bytes(column.dtype, column.row_shape)
    return ArrayMeta(column.dtype, (rows, *column.row_shape), file.crc)


def _row(column: Column, value: ArrayLike) -> Shaped[ndarray, "..."]:
    array = np.asarray(value)
    if array.shape != column.row_shape or not np.can_cast(array.dtype, column.dtype, "same_kind"):
        raise DataError(
            f"'{column.name}' is {array.dtype}{list(array.shape)}, the dataset stores "
            f"{column.dtype}{list(column.row_shape)}. Convert it, or create a dataset with another EnvSpec."
        )
    require_in_range(column.name, array, column.dtype)
    return np.ascontiguousarray(array, dtype=column.dtype).reshape(column.row_shape)
