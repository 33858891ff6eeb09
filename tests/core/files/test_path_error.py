"""Sentences for paths that the system refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.core.files.describe_path import not_a
from robo_rl.core.files.path_error import explained
from robo_rl.runs.outputs import check_folder, check_new


def refusal(code: int, path: str | Path) -> str:
    """What a user reads when the system refuses `path`."""
    return str(explained(OSError(code, os.strerror(code), str(path))))


def test_a_link_to_a_missing_folder_is_named(tmp_path: Path) -> None:
    """`runs` is often a link to another disk; "File exists" hides that this disk is not mounted."""
    link = tmp_path / "runs"
    link.symlink_to(tmp_path / "disk")
    said = f"{link} is a link to {tmp_path / 'disk'}, which does not exist."
    with pytest.raises(FileExistsError) as refused:
        (link / "a").mkdir(parents=True, exist_ok=True)
    assert str(explained(refused.value)).startswith(f"{said} Choose another path, or make the folder")
    assert refusal(errno.ENOENT, link / "a" / "b").startswith(said)
    assert not_a(link / "a", "a run") == said
    for check, path in ((check_folder, link), (check_folder, link / "a"), (check_new, link / "a")):
        with pytest.raises(ConfigError, match=r"cannot be written: .*runs is a link to "):
            check("out", str(path))


def test_a_link_to_a_folder_is_a_folder(tmp_path: Path) -> None:
    """Results may be on another disk."""
    (tmp_path / "runs").symlink_to(tmp_path, target_is_directory=True)
    check_folder("out", str(tmp_path / "runs" / "a"))
    check_new("out", str(tmp_path / "runs"))


def test_the_remedy_fits_the_refusal() -> None:
    """Permissions are named only where they are the cause."""
    assert refusal(errno.EACCES, "a") == (
        "Permission denied: a. Choose another path, or change its permissions."
    )
    assert refusal(errno.ENAMETOOLONG, "a") == "File name too long: a. Choose a shorter one."
    assert refusal(errno.ENOTDIR, "a") == "Not a directory: a. Choose another path."
    assert explained(FileNotFoundError(errno.ENOENT, "No such file or directory", "a")) is None


def test_links_to_links(tmp_path: Path) -> None:
    """The last one is to be mended; links that lead back to themselves have no missing folder."""
    first, second, loop = (tmp_path / name for name in ("first", "second", "loop"))
    first.symlink_to("second")
    second.symlink_to("gone")
    assert not_a(first, "a run") == f"{second} is a link to gone, which does not exist."
    loop.symlink_to("loop")
    assert "which does not exist" not in refusal(errno.EEXIST, loop)
    assert explained(OSError(errno.EEXIST, "File exists", 7)) is None
