"""The place in a user's own file, such as a task named in ROBO_RL_PLUGINS, at which an error was raised."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import NamedTuple

from robo_rl.core.packages import OURS, ROOT

_LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))
_INSTALLED = ("site-packages", "dist-packages")  # folders of installed packages


class UserLine(NamedTuple):
    """A line of a user's own file. innermost: no code of robo-rl ran below it."""

    file: str
    line: int
    innermost: bool


def user_line(error: BaseException) -> UserLine | None:
    """The innermost line of a user's own file in the error's traceback; None: there is none."""
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        return UserLine(error.filename, error.lineno or 1, True)
    innermost = True
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _is_users(frame.filename):
            return UserLine(frame.filename, frame.lineno or 1, innermost)
        innermost = innermost and not is_ours(Path(frame.filename).resolve())
    return None


def is_ours(path: Path) -> bool:
    return any(path.is_relative_to(ROOT / package) for package in OURS)


def _is_users(file: str) -> bool:
    """True for a file outside robo-rl, the standard library and installed packages."""
    if file.startswith("<"):  # generated code, and Python's own import system
        return False
    path = Path(file).resolve()
    installed = any(part in _INSTALLED for part in path.parts)
    return not (installed or is_ours(path) or any(path.is_relative_to(library) for library in _LIBRARIES))
