"""Descriptions of paths that hold something other than what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_rl.core.files.describe_path import describe_path


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("dataset.json", "is a dataset"),
        ("manifest.json", "is a bundle"),
        ("run.json", "is a run"),
        ("policy.json", "is a policy folder"),
        ("notes.txt", "is a folder of unknown content"),
    ],
)
def test_a_folder_is_known_by_its_file(mark: str, said: str, tmp_path: Path) -> None:
    """Each kind of output has a file that identifies it."""
    (tmp_path / mark).write_text("{}")
    assert describe_path(tmp_path) == said
    assert describe_path(tmp_path / mark) == "is a file"


def test_nothing_and_an_empty_folder(tmp_path: Path) -> None:
    """A mistyped path, and a run that ended before it began."""
    assert describe_path(tmp_path / "nowhere") == "does not exist"
    assert describe_path(tmp_path) == "is an empty folder"
