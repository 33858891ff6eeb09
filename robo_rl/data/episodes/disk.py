"""Full disks: detected in advance where possible, and reported in one sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robo_rl.core.errors import DiskFullError
from robo_rl.core.text.commands import command

# EFBIG: for a recorder, a file-size limit (ulimit -f, quota of some file systems) is the same as a full disk.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def free_bytes(path: Path) -> int:
    """Bytes that this user can still write to the file system of `path`."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def require_free(path: Path, floor_bytes: int) -> None:
    """Raise DiskFullError if fewer than `floor_bytes` are free on the file system of `path`."""
    free = free_bytes(path)
    if free < floor_bytes:
        raise DiskFullError(
            f"Only {free / 2**20:,.0f} MiB are free on the disk of {path}; "
            f"{floor_bytes / 2**20:,.0f} MiB are needed. Free some space, or choose another disk."
        )


def existing_parent(path: Path) -> Path:
    """The nearest folder above `path` that exists."""
    return next(each for each in path.absolute().parents if each.is_dir())


def is_full(error: OSError) -> bool:
    """True for the errors of a full disk."""
    return error.errno in _FULL


@contextmanager
def report_full_disk(path: Path, what: str, advice: str = "") -> Iterator[None]:
    """Context manager that turns the system's 'no space left' into DiskFullError.

    advice: sentence on what to do once some space is free.
    """
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise DiskFullError(
            f"The disk is full: {what} in {path} could not be written. Committed episodes are safe; "
            "free some space.",
            advice,
        ) from error


def nothing_remains(out: str | Path) -> DiskFullError:
    """Error of a full disk for an output that was deleted, because it appears complete or not at all."""
    return DiskFullError(
        f"The disk is full: {out} could not be written, and nothing of it remains.",
        "Free some space, or choose another disk by out=.",
    )


def how_to_salvage(path: Path) -> str:
    """Sentence on the episode that was being written in a dataset."""
    return f"Then salvage the running one: {command('data validate', path=path, recover=True)}"
