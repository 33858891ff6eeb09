"""A folder that all workers of a test run share, for what takes seconds to make and is the same for each."""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

_VARIABLE = "ROBO_RL_TEST_FOLDER"


@cache
def shared_folder() -> Path:
    """The folder. The process that asks first makes it, and deletes it at its end; later ones inherit it."""
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="robo-rl-tests-")
        atexit.register(shutil.rmtree, os.environ[_VARIABLE], ignore_errors=True)
    return Path(os.environ[_VARIABLE])


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Folder `name` of the shared one, made by `make(folder)` unless a worker has made it."""
    folder = shared_folder() / name
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=shared_folder()) as own:
            make(Path(own) / name)
            try:
                (Path(own) / name).rename(folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise  # else another worker was faster
    return folder
