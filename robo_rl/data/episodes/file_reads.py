"""Positioned reads from many files with a bounded number of open ones."""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from pathlib import Path

from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped


class FileReads:
    """Reads byte ranges of files into arrays; keeps the most recently used files open.

    It uses `pread` instead of a memory map: equally fast on cached files, faster on the first pass (no page
    faults), and a file that is truncated during training raises an error instead of SIGBUS. There is no file
    position, so forked workers may share the descriptors.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit or _quarter_of_allowed()
        self._fds: OrderedDict[Path, int] = OrderedDict()

    @property
    def open_files(self) -> int:
        return len(self._fds)

    def into(self, out: Shaped[ndarray, "..."], path: Path, offset: int) -> None:
        """Fill `out` (C-contiguous) from byte `offset` on. Raises DataError if the file is gone or too
        short.
        """
        fd = self._fds.get(path)
        if fd is None:
            fd = self._open(path)
        else:
            self._fds.move_to_end(path)
        if (done := os.preadv(fd, (out.data,), offset)) != out.nbytes:
            self._rest(out, fd, path, offset, done)

    def _rest(self, out: Shaped[ndarray, "..."], fd: int, path: Path, offset: int, done: int) -> None:
        """Continue a read that stopped early (signals, 2 GiB)."""
        view = out.data.cast("B")
        while done < out.nbytes:
            read = os.preadv(fd, (view[done:],), offset + done)
            if read == 0:
                raise DataError(
                    f"{path} ends before byte {offset + out.nbytes}: it is truncated. "
                    "Run `robo-rl data validate` on the dataset."
                )
            done += read

    def _open(self, path: Path) -> int:
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise DataError(f"{path} is missing. Run `robo-rl data validate` on the dataset.") from error
        self._fds[path] = fd
        if len(self._fds) > self._limit:
            os.close(self._fds.popitem(last=False)[1])
        return fd

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def __del__(self) -> None:
        self.close()


def _quarter_of_allowed() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1024 if soft == resource.RLIM_INFINITY else max(8, min(1024, soft // 4))
