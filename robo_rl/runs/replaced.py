"""Runs replaced by overwrite=true: kept in `<run>/.replaced/<number>` until the new run is done.

They stay inside the run's folder, because that may be a link or a mount point.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from robo_rl.core.files.lock import LOCK_FILE

REPLACED = ".replaced"
BESIDE = frozenset({LOCK_FILE, REPLACED})  # entries of a run's folder that are not part of a run
_LAST = "run.json"  # moved last: after a killed move, the rest is still recognised as a run


def contents(run: Path) -> list[Path]:
    """Entries of a run's folder without its lock and replaced runs."""
    return [path for path in run.iterdir() if path.name not in BESIDE]


def clear(run: Path) -> None:
    """Delete the contents; folder, lock and replaced runs remain."""
    for path in contents(run):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def move_aside(run: Path) -> Path:
    """Move the contents into a new folder in `.replaced`, which is returned."""
    numbers = [int(path.name) for path in (run / REPLACED).glob("[0-9]*")]
    aside = run / REPLACED / str(max(numbers, default=0) + 1)
    aside.mkdir(parents=True)
    _move(run, aside)
    return aside


def move_back(run: Path, aside: Path) -> None:
    """Delete the contents and restore those that `move_aside` moved."""
    clear(run)
    _move(aside, run)
    aside.rmdir()
    drop_if_empty(run)


def drop(run: Path) -> None:
    """Delete all replaced runs."""
    shutil.rmtree(run / REPLACED, ignore_errors=True)


def drop_if_empty(run: Path) -> None:
    folder = run / REPLACED
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _move(source: Path, target: Path) -> None:
    for path in sorted(contents(source), key=lambda path: path.name == _LAST):
        path.rename(target / path.name)
