"""Commit of an episode: from staging/ to episodes/, safe against a kill or a power loss at any instant.

1. episode.json, durably: the intent. From here on, `recover` completes the commit, with its label, instead of
   salvaging.
2. padding and index after each payload, and all zarr.json.
3. fsync of every file, then of every directory; recording.json is deleted.
4. rename into episodes/ under the next free number: now it is committed.
5. fsync of both parents.

All writes precede the first fsync of step 3, so a journaling file system commits them together. Without
`durable` the fsyncs are left out: the commit is then safe against a kill, not against a power loss.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import fsync_dir
from robo_rl.data.episodes.schema import (
    EPISODE_JSON,
    EPISODES,
    RECORDING_JSON,
    STAGING,
    ZARR_JSON,
    EpisodeMeta,
)
from robo_rl.data.episodes.shard import PayloadFile, tail_bytes, zarr_array_json, zarr_group_json

LOCK = "lock"
DISCARDED = ".discarded"  # suffix of a staging directory whose deletion was interrupted


def seal(
    directory: Path, meta: EpisodeMeta, files: Mapping[str, PayloadFile], *, durable: bool = True
) -> None:
    """Steps 1-3. `files` must be settled at the rows that `meta` states. Can be repeated after a failure."""
    intent = directory / f".{EPISODE_JSON}"
    write_json_file(intent, meta.to_json())
    if durable:
        fsync(intent)
    intent.replace(directory / EPISODE_JSON)
    if durable:
        fsync_dir(directory)
    for name, array in meta.arrays.items():
        os.ftruncate(files[name].fd, files[name].size)
        _write_all(files[name].fd, tail_bytes(array))
        write_json_file(directory / name / ZARR_JSON, zarr_array_json(array))
    write_json_file(directory / ZARR_JSON, zarr_group_json(meta.arrays))
    if durable:
        _sync(directory, files)
    (directory / RECORDING_JSON).unlink(missing_ok=True)


def _sync(directory: Path, files: Mapping[str, PayloadFile]) -> None:
    for name, file in files.items():
        os.fsync(file.fd)
        fsync(directory / name / ZARR_JSON)
    fsync(directory / ZARR_JSON)
    for name in files:
        fsync_dir(directory / name)
    fsync_dir(directory)


def publish(root: Path, staged: Path) -> int:
    """Step 4. Returns the episode's number. Safe while several episodes are recorded."""
    episodes = root / EPISODES
    number = max(numbers(root), default=-1) + 1
    while True:
        try:
            staged.rename(episodes / f"{number:06d}")
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            number += 1  # another episode has taken this number
    return number


def sync_parents(root: Path) -> None:
    """Step 5: make the rename survive a power loss."""
    fsync_dir(root / EPISODES)
    fsync_dir(root / STAGING)


def numbers(root: Path) -> list[int]:
    """Numbers of the committed episodes, ascending. Raises DataError without the folder of episodes."""
    try:
        return sorted(int(p.name) for p in (root / EPISODES).iterdir() if p.name.isdecimal())
    except FileNotFoundError as error:
        raise DataError(
            f"{root / EPISODES} is missing: the dataset was copied in part, or damaged. Copy it again; if it "
            f"has no episodes, robo-rl data repair path={root} makes it usable."
        ) from error


@contextmanager
def staging_lock(root: Path, *, exclusive: bool) -> Iterator[None]:
    """Lock that running episodes share and that `recover` holds exclusively.

    Raises DataError for an exclusive lock while an episode is being recorded. The kernel releases the lock of
    a killed process. A child forked during a recording closes its copy, so an orphan cannot hold the lock.
    """
    (root / STAGING).mkdir(exist_ok=True)  # copies and version control leave out empty folders
    fd = os.open(root / STAGING / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    _LOCKS.add(fd)
    try:
        _lock(fd, root, exclusive)
        yield
    finally:
        if fd in _LOCKS:  # not in a forked child, which has closed it
            _LOCKS.discard(fd)
            os.close(fd)


def _lock(fd: int, root: Path, exclusive: bool) -> None:
    try:
        fcntl.flock(fd, (fcntl.LOCK_EX | fcntl.LOCK_NB) if exclusive else fcntl.LOCK_SH)
    except BlockingIOError as error:
        raise DataError(f"{root} is being recorded into. Stop the recorder, then try again.") from error


def is_recorded_into(root: Path) -> bool:
    """True while an episode of the dataset is being recorded."""
    try:
        fd = os.open(root / STAGING / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


_LOCKS: set[int] = set()


def _drop_locks_in_child() -> None:
    for fd in _LOCKS:
        os.close(fd)
    _LOCKS.clear()


os.register_at_fork(after_in_child=_drop_locks_in_child)


def write_json_file(path: Path, data: Any) -> None:
    """Write JSON without fsync."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_all(fd, json.dumps(data, allow_nan=False).encode())
    finally:
        os.close(fd)


def fsync(path: Path) -> None:
    """Wait until the disk holds the bytes of a file. Its name needs an fsync of its folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
