"""Output paths: checks before the work, so that a mistake in out= costs no computing time, and free names."""

from __future__ import annotations

import os
from itertools import chain, count
from pathlib import Path

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.files.durable import read_json
from robo_rl.core.files.path_error import dangling


def check_file(key: str, path: str | None) -> None:
    """Raise ConfigError if the file `key`=`path` could not be written later; None: no file."""
    if path is None:
        return
    if Path(path).is_dir():
        raise ConfigError(f"{key}={path} is a folder, expected a file. Add a name to it.")
    _check_above(key, path, Path(path).absolute().parent)


def check_report(key: str, path: str | None, mark: str) -> None:
    """`check_file` for a report in JSON, which replaces no other file than an earlier report.

    mark: name of a value that every such report holds.
    """
    check_file(key, path)
    if path is not None and Path(path).exists() and not _is_report(Path(path), mark):
        raise ConfigError(
            f"{key}={path} exists already and is no file of a report of this verb, so it is not replaced. "
            "Choose another path."
        )


def _is_report(path: Path, mark: str) -> bool:
    """True for a JSON object that holds `mark`, and for an empty file. False for a device and for a link,
    such as /dev/stdout: the report would replace the link itself.
    """
    if path.is_symlink() or not path.is_file():
        return False
    if path.stat().st_size == 0:
        return True
    with path.open("rb") as file:
        if file.read(1) != b"{":
            return False
    try:
        return mark in read_json(path)
    except DataError:
        return False


def check_folder(key: str, path: str) -> None:
    """Raise ConfigError if files could not be written into the folder `key`=`path` later."""
    _check_above(key, path, Path(path).absolute())


def check_new(key: str, path: str) -> None:
    """Raise ConfigError if the new file or folder `key`=`path` could not be made later. One that exists is
    left to its writer, which may replace it.
    """
    if not os.path.lexists(path):
        _check_above(key, path, Path(path).absolute().parent)


def free_path(path: Path) -> Path:
    """`path`, or if that exists, the first of `path`-2, `path`-3, ... that does not."""
    names = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(each for each in chain([path], names) if not os.path.lexists(each))


def ending_in_name(folder: Path) -> Path:
    """The same folder by a path that ends in its name, unlike `.` and `..`, so that others can be made beside
    it.
    """
    return folder.resolve() if folder.name in ("", "..") else folder


def _check_above(key: str, path: str, folder: Path) -> None:
    """Check the nearest existing parent of `folder` (absolute path); missing folders are created later."""
    if gone := dangling(folder):
        raise ConfigError(f"{key}={path} cannot be written: {gone} Choose another path.")
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise ConfigError(
            f"{key}={path} cannot be written: {there} is a file, expected a folder. Choose another path."
        )
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"{key}={path} cannot be written: {there} is not writable. Choose another path.")
