"""Faults of a disk, for tests of a recorder, of an app or of a program of your own.

    with full_disk(tmp_path, room_bytes=12_000):       # writes below the folder, until they are full
        record_until_it_fails()
    for call in count(1):                              # killed at its first disk call, its second, ...
        if not killed_at(call, record_an_episode):
            break

Both replace functions of `os`, as Python code calls them: files that another language writes, or Python's own
buffered files, need a kernel's limit, by `small_disk` or `file_size_limit`. See docs/recording.md.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

Call = Callable[..., Any]
Moment = Literal["before", "half", "after"]
Place = tuple[Any, str]  # a module or class, and the name of its function
WRITES = ("write", "pwrite")
CALLS = (*WRITES, "fsync", "ftruncate", "mkdir", "rmdir", "rename", "replace", "link", "unlink", "open")


@contextmanager
def full_disk(folder: Path, room_bytes: int) -> Iterator[None]:
    """Writes below `folder` fail with ENOSPC once they have stored `room_bytes`; the last one in part."""
    left, place = room_bytes, folder.resolve()

    def limit(call: Call) -> Call:
        def write(fd: int, data: Any, *more: Any) -> int:
            nonlocal left
            if place not in Path(os.readlink(f"/proc/self/fd/{fd}")).parents:
                return int(call(fd, data, *more))
            if left <= 0 and len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            stored = int(call(fd, memoryview(data).cast("B")[: max(left, 0)], *more))
            left -= stored
            return stored

        return write

    with _replaced([(os, name) for name in WRITES], limit):
        yield


@contextmanager
def full_at_call(number: int, calls: Sequence[str] = ("write",)) -> Iterator[Callable[[], bool]]:
    """The disk call of this number, from 1, fails once with ENOSPC; a write stores half of its bytes.

    calls: functions of `os` that count. Yields a function that says whether it has failed.
    """
    failed = False

    def fail(call: Call, arguments: tuple[Any, ...]) -> None:
        nonlocal failed
        failed = True
        _write_half(call, arguments)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with _replaced([(os, name) for name in calls], _counting(number, fail)):
        yield lambda: failed


def killed_at(
    number: int,
    work: Callable[[], object],
    calls: Sequence[str] = CALLS,
    moment: Moment = "before",
    also: Sequence[Place] = (),
) -> bool:
    """Do `work` in a fork that gets SIGKILL at its disk call of this number, from 1. False: it survived.

    calls: functions of `os` that count; also: further functions, as (module, name). moment: of the kill;
    "half": half of the bytes of a write are stored, and other calls are not made. A fork that ends by an
    exception raises RuntimeError here; its traceback is on stderr. Fork before threads are started.
    """
    if (child := os.fork()) == 0:
        status = 1
        try:
            kill_at_call(number, calls, moment, also)
            work()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended not in (0, -signal.SIGKILL):
        raise RuntimeError(f"The work ended with {ended} instead of being killed at call {number}.")
    return ended != 0


def kill_at_call(
    number: int, calls: Sequence[str] = CALLS, moment: Moment = "before", also: Sequence[Place] = ()
) -> None:
    """Kill this process, without any clean-up, at the disk call of this number from now on."""

    def die(call: Call, arguments: tuple[Any, ...]) -> None:
        if moment == "half":
            _write_half(call, arguments)
        elif moment == "after":
            call(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    _replace([*((os, name) for name in calls), *also], _counting(number, die))


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """The kernel lets no file of this process grow above this size (EFBIG), whoever writes it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def small_disk(folder: Path, size_mib: int) -> list[str] | None:
    """Prefix of a command that sees a new file system of this size on `folder`, which ends with it.

    None where the system permits no mount, neither to this user nor in a user namespace.
    """
    if shutil.which("unshare") is None:
        return None
    mount = 'mount -t tmpfs -o size="$1"m tmpfs "$2" && shift 2 && exec "$@"'
    for flags in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        prefix = ["unshare", *flags, "sh", "-c", mount, "sh", str(size_mib), str(folder)]
        if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
            return prefix
    return None


@contextmanager
def _replaced(places: Sequence[Place], wrap: Callable[[Call], Call]) -> Iterator[None]:
    """Replace functions by wrapped ones for a while."""
    before = _replace(places, wrap)
    try:
        yield
    finally:
        for owner, name, call in before:
            setattr(owner, name, call)


def _replace(places: Sequence[Place], wrap: Callable[[Call], Call]) -> list[tuple[Any, str, Call]]:
    """Replace functions by wrapped ones; returns what was there before."""
    before = [(owner, name, getattr(owner, name)) for owner, name in places]
    for owner, name, call in before:
        setattr(owner, name, wrap(call))
    return before


def _counting(number: int, act: Callable[[Call, tuple[Any, ...]], None]) -> Callable[[Call], Call]:
    """Wrapper that calls `act` before the call of this number; act(call, positional arguments)."""
    done = 0

    def wrap(call: Call) -> Call:
        def counted(*given: Any, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done == number:
                act(partial(call, **more), given)
            return call(*given, **more)

        return counted

    return wrap


def _write_half(call: Call, given: tuple[Any, ...]) -> None:
    """Store half of the bytes of a write; do nothing for other calls."""
    if len(given) >= 2 and isinstance(given[0], int) and isinstance(given[1], bytes | bytearray | memoryview):
        call(given[0], bytes(given[1])[: len(given[1]) // 2], *given[2:])
