"""Full disks: detected before they happen where possible, and reported in one sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from robo_rl.core.errors import DiskFullError

# EFBIG: a file-size limit (ulimit -f, quota of some file systems) means the same to a recorder as a full
# disk.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write to the file system of `path`."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def require_free(path: Path, floor_bytes: int) -> None:
    """Raise DiskFullError when less than `floor_bytes` are free where `path` lies."""
    free = free_bytes(path)
    if free < floor_bytes:
        raise DiskFullError(
            f"Only {free / 2**20:,.0f} MiB are free where {path} lies, the recorder keeps "
            f"{floor_bytes / 2**20:,.0f} MiB. Free some space, or record to another disk."
        )


@contextmanager
def full_disk_is_said(path: Path, what: str) -> Iterator[None]:
    """Turn 'no space left' of the operating system into DiskFullError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DiskFullError(
            f"The disk is full: {what} in {path} could not be written. Committed episodes are untouched; "
            "free some space, then salvage the running one: robo-rl data validate recover=true."
        ) from error
