"""Output of an export: it appears under its path when it is complete, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import fsync_dir, make_folder
from robo_rl.data.episodes.disk import is_full, nothing_remains, require_free


@contextmanager
def new_output(out: str | Path, needed_bytes: int = 0) -> Iterator[Path]:
    """Context manager with a path beside `out` for a new file or folder, which is renamed to `out` at the
    end.

    needed_bytes: free space below which nothing is begun, for libraries that do not survive a full disk. If
    the block raises, nothing remains. Raises DataError if `out` exists, DiskFullError on a full disk.
    """
    target = Path(out)
    if target.exists():
        raise DataError(f"{out} exists already. Choose another out=, or move it away.")
    make_folder(target.absolute().parent)
    require_free(target.absolute().parent, needed_bytes)
    partial = target.with_name(f".{target.name}.exporting")
    _remove(partial)  # of an export that was killed
    try:
        yield partial
        os.sync()
        partial.rename(target)
        fsync_dir(target.absolute().parent)
    except BaseException as error:
        _remove(partial)
        if isinstance(error, OSError) and is_full(error):
            raise nothing_remains(out) from error
        raise


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        rmtree(path)
    else:
        path.unlink(missing_ok=True)
