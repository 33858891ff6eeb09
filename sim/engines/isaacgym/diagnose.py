"""Location of Isaac Gym's interpreter, and the error when it is missing."""

from __future__ import annotations

import os

from robo_rl.core.errors import ConfigError, MissingDependencyError

VARIABLE = "ROBO_RL_ISAACGYM_PYTHON"
_NEEDS = (
    "The engine isaacgym needs Isaac Gym Preview 4 (NVIDIA's download, no longer supported) in a Python 3.7 "
    f"or 3.8 of its own, and an NVIDIA GPU: set {VARIABLE} to that interpreter, or use engine=mjwarp, which "
    "needs neither"
)


def interpreter() -> str:
    """Path of the interpreter. Raises MissingDependencyError for an unset variable, ConfigError where it
    names no program.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        raise MissingDependencyError(f"{_NEEDS} (docs/engines-gpu.md).")
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise ConfigError(f"{VARIABLE} is {path}, which is no program. {_NEEDS}.")
    return path


def missing(python: str, text: str) -> MissingDependencyError:
    """Error for a failed import. text: the worker's traceback, whose last line names the module."""
    return MissingDependencyError(
        f"{python} cannot load Isaac Gym: {text.strip().splitlines()[-1]}. {_NEEDS}."
    )
