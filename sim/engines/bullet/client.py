"""Import of PyBullet, an optional package: robo-rl works without it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from robo_rl.core.errors import MissingDependencyError
from robo_rl.core.packages import pip_install


def load_pybullet() -> Any:
    """The module. Raises MissingDependencyError with the command that installs it."""
    if (loaded := sys.modules.get("pybullet")) is not None:
        return loaded
    try:
        with _quiet():
            import pybullet
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "The PyBullet engine needs the package 'pybullet', which is not installed. "
            f"Run: {pip_install('pybullet')} (Python 3.10 or 3.11: there are no wheels for later ones)"
        ) from error
    return pybullet


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the build time that PyBullet writes to file descriptor 2 when it is imported."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
