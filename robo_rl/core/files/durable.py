"""Durable writes: after a kill or power loss, a file has its old or its new content."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from robo_rl.core.errors import DataError, DiskFullError

_HERE, _EXCHANGE = -100, 2  # of Linux: AT_FDCWD, for paths relative to the working directory; RENAME_EXCHANGE


def fsync_dir(path: Path) -> None:
    """Make renames and new names inside `path` survive a power loss."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents durably. Does nothing if it exists."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        fsync_dir(folder.parent)


def exchange(one: Path, other: Path) -> bool:
    """Swap two paths in one system call; False, without any change, if the file system or system cannot do
    so.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    if (code := ctypes.get_errno()) in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def write_atomic(path: Path, data: bytes) -> None:
    """Write, fsync, rename over `path`. On a full disk, raises DiskFullError and keeps the old file."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        _write_synced(temporary, data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"The disk is full: could not write {path}. Free some space.", "Then start again."
            ) from error
        raise OSError(error.errno, error.strerror, str(path)) from error  # with the path that the caller gave
    fsync_dir(path.parent)


def _write_synced(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def json_number(value: float | None) -> float | None:
    """The number; None for NaN and infinity, which JSON has not."""
    return None if value is None or not math.isfinite(value) else value


def write_json(path: Path, data: Any) -> None:
    """`write_atomic` of indented JSON."""
    write_atomic(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())


def read_regular(path: Path) -> str:
    """Text of a regular file, or of the one that a link leads to.

    Raises DataError for a device or a pipe, which may never end, FileNotFoundError and other errors of
    `open`.
    """
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise DataError(f"{path} is not a regular file but a device, pipe or socket. Restore it from a copy.")
    return path.read_text()


def read_json(path: Path) -> Any:
    """Parsed JSON file. Raises DataError that names the file if it is absent, not regular or not JSON."""
    try:
        return json.loads(read_regular(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{path} does not exist. Check the path, or run the step that makes it.") from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # not JSON, not UTF-8, a number of 5,000 digits, nested too deep
        raise DataError(
            f"{path} is not valid JSON ({error}). It is truncated or from another program; create it again."
        ) from error
