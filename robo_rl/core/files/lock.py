"""Lock of a folder that one process at a time may write. The kernel releases it when the process dies."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import weakref
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from robo_rl.core.errors import LockedError

LOCK_FILE = ".lock"
_COMMAND_CHARS = 80
_TAKEN = (errno.EACCES, errno.EAGAIN)


class FolderLock:
    """Exclusive lock of an existing folder. Released by `close`, with the object, or with the process.

    POSIX record lock on `folder`/.lock: forked children do not inherit it, and it works on network file
    systems. Within one process a folder may be locked several times; the last release frees it.
    """

    def __init__(self, folder: str | Path, what: str) -> None:
        """Acquire the lock. what: kind of the folder for the message, e.g. "run".

        Raises LockedError that names the process which holds the lock.
        """
        path = (Path(folder) / LOCK_FILE).resolve()
        self._key = _acquire(path, folder, what)
        self._release = weakref.finalize(self, _release, self._key)

    @property
    def is_shared(self) -> bool:
        """True if this process holds the folder by another lock, too."""
        return _HELD.get(self._key, (0, 0))[1] > 1

    def close(self) -> None:
        """Release the lock; further calls do nothing."""
        self._release()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_Key = tuple[int, int, int]  # device and inode of the lock file, and the process
_HELD: dict[_Key, tuple[int, int]] = {}  # -> file descriptor, number of locks


def _acquire(path: Path, folder: str | Path, what: str) -> _Key:
    # Closing any descriptor of a file releases the process's record locks on it: open it only if it is not
    # held.
    if path.exists() and (key := _key(path.stat())) in _HELD:
        fd, count = _HELD[key]
        _HELD[key] = fd, count + 1
        return key
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 4096, 0)
        os.close(fd)
        if error.errno not in _TAKEN:
            raise
        raise LockedError(
            f"{folder} is in use by {_described(holder)}. Wait until it ends, stop it, or choose another "
            f"{what}."
        ) from error
    if not path.exists() or _key(path.stat()) != _key(os.fstat(fd)):
        os.close(fd)  # an edit has replaced the folder between `open` and `lockf`
        return _acquire(path, folder, what)
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(_holder()).encode(), 0)
    key = _key(os.fstat(fd))
    _HELD[key] = fd, 1
    return key


def _release(key: _Key) -> None:
    if key not in _HELD or key[2] != os.getpid():  # a forked child holds no lock
        return
    fd, count = _HELD.pop(key)
    if count > 1:
        _HELD[key] = fd, count - 1
    else:
        os.close(fd)


def _key(stat: os.stat_result) -> _Key:
    return stat.st_dev, stat.st_ino, os.getpid()


def _holder() -> dict[str, Any]:
    program = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else "python"
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": program,
        "since": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S"),
    }


def _described(holder: bytes) -> str:
    """Description of the process in a lock file, e.g. "process 4711 (robo-rl train ..., since ...)"."""
    try:
        found = json.loads(holder)
        command = str(found["command"])
        if len(command) > _COMMAND_CHARS:
            command = command[: _COMMAND_CHARS - 3] + "..."
        where = "" if found["host"] == socket.gethostname() else f" on {found['host']}"
        return f"process {found['pid']}{where} ({command}, since {found['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
