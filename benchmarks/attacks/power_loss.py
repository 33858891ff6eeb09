"""Simulated power losses: a program's disk calls are logged, and the disk is rebuilt as a loss could leave
it.

Two models of what survives. "strict": only what was synced, and any part of the rest; a file's fsync does not
sync its name, that of its folder does (POSIX). "journal": names and lengths survive in the order of the
calls, up to some instant after the last fsync; data of unsynced files may be missing (ext4, data=ordered).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Model = Literal["strict", "journal"]


@dataclass(frozen=True, slots=True)
class DiskCall:
    """One logged call. Nodes (files and folders) have numbers of the log's own."""

    kind: Literal["create", "mkdir", "write", "truncate", "fsync", "sync", "rename", "unlink"]
    node: int = 0
    folder: int = 0
    name: str = ""
    to_folder: int = 0
    to_name: str = ""
    offset: int = 0
    data: bytes = b""


@dataclass
class DiskLog:
    """Calls below `root`, in order. marks: what the program acknowledged, as (calls so far, what)."""

    root: Path
    calls: list[DiskCall] = field(default_factory=list)
    marks: list[tuple[int, Any]] = field(default_factory=list)
    _nodes: dict[int, int] = field(default_factory=dict)  # inode -> node; inode numbers are used again

    def __post_init__(self) -> None:
        self._nodes[self.root.stat().st_ino] = 0

    def acknowledge(self, what: Any) -> None:
        """Record that the program relies on `what` from here on."""
        self.marks.append((len(self.calls), what))

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Log calls of `os` functions. Writes by other means count as never made."""
        wraps: dict[str, Callable[..., Any]] = {
            **{"open": self._open, "write": self._write, "ftruncate": self._ftruncate, "fsync": self._fsync},
            **{"mkdir": self._mkdir, "rename": self._rename, "replace": self._rename, "sync": self._sync},
            **{"unlink": self._unlink, "remove": self._unlink, "rmdir": self._unlink},
        }
        originals = {name: getattr(os, name) for name in wraps}
        for name, wrap in wraps.items():
            setattr(os, name, _bound(wrap, originals[name]))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(os, name, original)

    def _new(self, path: Path) -> int:
        node = len(self.calls) + 1
        self._nodes[path.stat().st_ino] = node
        return node

    def _place(self, path: Any, dir_fd: int | None = None) -> tuple[int, str] | None:
        """(folder's node, name); None for a path outside of the root."""
        place = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) / path if dir_fd is not None else Path(path)
        folder = self._nodes.get(place.parent.stat().st_ino)
        return None if folder is None else (folder, place.name)

    def _of_fd(self, fd: int) -> int | None:
        return self._nodes.get(os.fstat(fd).st_ino)

    def _open(self, original: Callable[..., int], path: Any, flags: int, *rest: Any, **options: Any) -> int:
        is_new = bool(flags & os.O_CREAT) and not os.path.lexists(path)
        fd = original(path, flags, *rest, **options)
        if flags & os.O_CREAT and (place := self._place(path)) is not None:
            if is_new:
                self.calls.append(DiskCall("create", self._new(Path(path)), *place))
            elif flags & os.O_TRUNC and (node := self._of_fd(fd)) is not None:
                self.calls.append(DiskCall("truncate", node))
        return fd

    def _write(self, original: Callable[..., int], fd: int, data: Any) -> int:
        node = self._of_fd(fd)
        at = os.fstat(fd).st_size  # this store only appends
        written = original(fd, data)
        if node is not None:
            self.calls.append(
                DiskCall("write", node, offset=at, data=bytes(memoryview(data).cast("B")[:written]))
            )
        return written

    def _ftruncate(self, original: Callable[..., None], fd: int, size: int) -> None:
        original(fd, size)
        if (node := self._of_fd(fd)) is not None:
            self.calls.append(DiskCall("truncate", node, offset=size))

    def _fsync(self, original: Callable[..., None], fd: int) -> None:
        if (node := self._of_fd(fd)) is not None:
            self.calls.append(DiskCall("fsync", node))
        del original  # the disk that matters is the simulated one

    def _sync(self, original: Callable[..., None]) -> None:
        self.calls.append(DiskCall("sync"))
        del original

    def _mkdir(self, original: Callable[..., None], path: Any, *rest: Any, **options: Any) -> None:
        original(path, *rest, **options)
        if (place := self._place(path)) is not None:
            self.calls.append(DiskCall("mkdir", self._new(Path(path)), *place))

    def _rename(self, original: Callable[..., None], source: Any, target: Any, **options: Any) -> None:
        here, there = self._place(source), self._place(target)
        original(source, target, **options)
        if here is not None and there is not None:
            self.calls.append(DiskCall("rename", 0, *here, *there))

    def _unlink(self, original: Callable[..., None], path: Any, *, dir_fd: int | None = None) -> None:
        place = self._place(path, dir_fd)
        original(path, dir_fd=dir_fd)
        if place is not None:
            self.calls.append(DiskCall("unlink", 0, *place))


def _bound(wrap: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: wrap(original, *args, **options)


@dataclass
class _Disk:
    """Files as (bytes, bytes that are safe), folders as names -> node."""

    files: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})

    def apply(self, call: DiskCall) -> None:
        """Apply a call to names and lengths. A name that was lost is ignored."""
        if call.kind in ("create", "mkdir"):
            self.folders.setdefault(call.folder, {})[call.name] = call.node
            if call.kind == "mkdir":
                self.folders.setdefault(call.node, {})
            else:
                self.files.setdefault(call.node, (b"", b""))
        elif call.kind == "write":
            data, safe = self.files.get(call.node, (b"", b""))
            self.files[call.node] = (data[: call.offset] + call.data, safe)
        elif call.kind == "truncate":
            data, safe = self.files.get(call.node, (b"", b""))
            self.files[call.node] = (data[: call.offset], safe)
        elif call.kind == "rename":
            moved = self.folders.get(call.folder, {}).pop(call.name, None)
            if moved is not None:
                self.folders.setdefault(call.to_folder, {})[call.to_name] = moved
        elif call.kind == "unlink":
            self.folders.get(call.folder, {}).pop(call.name, None)


def after_loss(log: DiskLog, instant: int, model: Model, rng: random.Random) -> _Disk:
    """Possible state of the disk after a power loss that follows `instant` calls."""
    calls = log.calls[:instant]
    return _strict(calls, rng) if model == "strict" else _journal(calls, rng)


def _strict(calls: list[DiskCall], rng: random.Random) -> _Disk:
    luck = rng.choice([0.0, 0.0, 0.5, 0.9])  # probability that an unsynced call survives
    synced = [_last_fsync(calls)]
    disk = _Disk()
    for i, call in enumerate(calls):
        if call.kind in ("write", "truncate", "fsync", "sync"):
            _data(disk, call)
        elif any(i < synced[0].get(folder, -1) for folder in _folders(call)) or rng.random() < luck:
            disk.apply(call)
        elif call.kind == "mkdir":
            disk.folders.setdefault(call.node, {})
    _lose_data(disk, rng)
    return disk


def _journal(calls: list[DiskCall], rng: random.Random) -> _Disk:
    commits = [i for i, call in enumerate(calls) if call.kind in ("fsync", "sync")]
    last = rng.randint(commits[-1] + 1 if commits else 0, len(calls))
    disk = _Disk()
    for call in calls[:last]:
        _data(disk, call) if call.kind in ("write", "truncate", "fsync", "sync") else disk.apply(call)
    _lose_data(disk, rng)
    return disk


def _last_fsync(calls: list[DiskCall]) -> dict[int, int]:
    """node -> index of the last call that made its names safe."""
    folders = {0} | {call.node for call in calls if call.kind == "mkdir"}
    last: dict[int, int] = {}
    for i, call in enumerate(calls):
        if call.kind == "sync":
            last.update(dict.fromkeys(folders, i))
        elif call.kind == "fsync":
            last[call.node] = i
    return last


def _folders(call: DiskCall) -> tuple[int, ...]:
    """Folders whose fsync makes a call safe; a rename changes two."""
    return (call.folder, call.to_folder) if call.kind == "rename" else (call.folder,)


def _data(disk: _Disk, call: DiskCall) -> None:
    if call.kind == "sync":
        disk.files = {node: (data, data) for node, (data, _) in disk.files.items()}
    elif call.kind == "fsync":
        if call.node in disk.files:
            data, _ = disk.files[call.node]
            disk.files[call.node] = (data, data)
    else:
        disk.apply(call)


def _lose_data(disk: _Disk, rng: random.Random) -> None:
    """Unsynced data survive completely, in part, or not at all."""
    for node, (data, safe) in disk.files.items():
        if data != safe:
            kept = rng.choice([len(data), rng.randint(0, len(data)), 0])
            disk.files[node] = (safe if kept < len(safe) else data[:kept], b"")


def write_out(disk: _Disk, folder: Path, node: int = 0) -> None:
    """Write a simulated disk below `folder`."""
    folder.mkdir(exist_ok=True)
    for name, child in disk.folders.get(node, {}).items():
        if child in disk.folders:
            write_out(disk, folder / name, child)
        elif child in disk.files:
            (folder / name).write_bytes(disk.files[child][0])
