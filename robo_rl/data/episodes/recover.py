"""Recovery of episodes left unfinished by a killed recorder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

import numpy as np

from robo_rl.core.errors import DataError
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.commit import (
    DISCARDED,
    is_recorded_into,
    publish,
    seal,
    staging_lock,
    sync_parents,
)
from robo_rl.data.episodes.disk import report_full_disk
from robo_rl.data.episodes.episode_writer import array_meta
from robo_rl.data.episodes.schema import (
    DAMAGED,
    EPISODE_JSON,
    JPEG_ENDS,
    RECORDING_JSON,
    STAGING,
    ArrayMeta,
    Column,
    DatasetMeta,
    EpisodeMeta,
)
from robo_rl.data.episodes.shard import PayloadFile, payload_bytes, row_bytes, shard_name


@dataclass(frozen=True, slots=True)
class Salvaged:
    """An episode that `recover` committed. complete: all frames were there, only the commit was
    unfinished.
    """

    number: int
    frames: int
    complete: bool


def recover(path: str | Path) -> list[Salvaged]:
    """Commit every interrupted episode of a dataset, cut to its last complete frame and marked incomplete.

    An episode whose recorder was killed during `commit` is completed with its label. Leftovers without a
    complete frame are deleted. Raises DataError while an episode is being recorded, and, after the others are
    salvaged, if a recording.json is broken; that episode is not changed.
    """
    root = Path(path)
    meta = DatasetMeta.load(root)
    salvaged: list[Salvaged] = []
    errors: list[DataError] = []
    with (
        staging_lock(root, exclusive=True),
        report_full_disk(root, "a recovered episode", "Then run the same command again."),
    ):
        for staged in leftovers(root):
            try:
                episode = _recover_one(root, meta, staged)
            except DataError as error:
                errors.append(error)
            else:
                salvaged += [episode] if episode else []
    if errors:
        raise errors[0]
    return salvaged


def leftovers(root: Path) -> list[Path]:
    """Staging directories, oldest first."""
    staging = root / STAGING
    directories = [p for p in staging.iterdir() if p.is_dir()] if staging.is_dir() else []
    return sorted(directories, key=lambda p: (p.stat().st_mtime_ns, p.name))


def staging_sentence(path: str | Path) -> str:
    """What waits in staging/ and what to do about it, in one line; empty if nothing waits."""
    waiting = counted(len(leftovers(Path(path))), "episode")
    if waiting.startswith("0 "):
        return ""
    if is_recorded_into(Path(path)):
        return f"staging/: {waiting}, one being recorded now; it is listed once it is saved."
    return f"staging/: {waiting}, interrupted. Recover: {command('data validate', path=path, recover=True)}"


def empty_sentence(path: str | Path) -> str:
    """Message for a dataset without committed episodes: what waits in staging/, or how to get some."""
    return f"{path} holds no episodes. {staging_sentence(path) or 'Collect, record or import some first.'}"


def _recover_one(root: Path, dataset: DatasetMeta, staged: Path) -> Salvaged | None:
    begun = any(p.is_dir() for p in staged.iterdir())  # recording.json is written before the first array
    if staged.suffix == DISCARDED or not begun:
        rmtree(staged)
        return None
    intent, columns = _intent(staged), dataset.columns()
    with ExitStack() as stack:
        files = {c.name: _reopen(stack, staged, c) for c in columns}
        if intent is None or not _holds(intent, files):
            intent = _cut(dataset, columns, files, _known(staged, intent))
        if intent.frames > 0:
            seal(staged, intent, files)
    if intent.frames == 0:
        rmtree(staged)
        return None
    number = publish(root, staged)
    sync_parents(root)
    return Salvaged(number, intent.frames, intent.complete)


def _intent(staged: Path) -> EpisodeMeta | None:
    """episode.json of a commit that had begun; it is written atomically, so it is complete or absent."""
    path = staged / EPISODE_JSON
    return EpisodeMeta.load(path) if path.exists() else None


def _known(staged: Path, intent: EpisodeMeta | None) -> EpisodeMeta:
    """Metadata of an interrupted episode, with a note if its arrays do not match its commit."""
    if intent is None:
        return EpisodeMeta.load(staged / RECORDING_JSON)
    return replace(
        intent, info={**intent.info, DAMAGED: "its arrays did not match the checksums of its commit"}
    )


def _reopen(stack: ExitStack, staged: Path, column: Column) -> PayloadFile:
    path = staged / column.name / shard_name(1 + len(column.row_shape))
    if not path.exists():  # killed while the arrays were being created: no frame can exist
        path.parent.mkdir(exist_ok=True)
        path.touch()
    file = PayloadFile(path, resume=True)
    stack.callback(file.close)
    return file


def _holds(intent: EpisodeMeta, files: Mapping[str, PayloadFile]) -> bool:
    """Truncate every array to the size in the intent; True if all bytes exist and their checksums match."""
    if intent.arrays.keys() != files.keys():
        return False
    # A list, not a generator: all must be truncated, or an index would later be counted as frames.
    return all([_same(files[name], array) for name, array in intent.arrays.items()])


def _same(file: PayloadFile, array: ArrayMeta) -> bool:
    size = payload_bytes(array)
    if file.size < size:
        return False
    file.cut(size)
    return file.crc == array.crc32c


def _cut(
    dataset: DatasetMeta, columns: tuple[Column, ...], files: Mapping[str, PayloadFile], known: EpisodeMeta
) -> EpisodeMeta:
    """Truncate all arrays to the last frame that each of them holds."""
    fixed = [c for c in columns if c.role != "blob"]
    frames = min(files[c.name].size // row_bytes(c.dtype, c.row_shape) for c in fixed)
    cameras = len(dataset.jpeg_keys)
    ends = np.zeros((0, cameras), dtype="int64")
    if cameras:
        ends = np.fromfile(files[JPEG_ENDS].path, dtype="int64", count=frames * cameras).reshape(
            frames, cameras
        )
        there = np.array([files[key].size for key in dataset.jpeg_keys])
        frames = int((ends <= there).all(axis=1).cumprod().sum())
    for column in fixed:
        files[column.name].cut(frames * row_bytes(column.dtype, column.row_shape))
    for camera, key in enumerate(dataset.jpeg_keys):
        files[key].cut(int(ends[frames - 1, camera]) if frames else 0)
    return replace(
        known,
        frames=frames,
        final_obs=False,
        complete=False,
        success=None,
        arrays={c.name: array_meta(c, files[c.name]) for c in columns},
    )
