"""Descriptions of paths that hold something other than what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_rl.core.files.describe_path import describe_path, not_a


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


def test_a_missing_path_is_answered_with_what_is_there(tmp_path: Path) -> None:
    """The nearest existing folder, and the names most like the missing one; nothing is said twice."""
    for name in ("reach", "peg20", ".hidden"):
        (tmp_path / "data" / name).mkdir(parents=True)
    data = tmp_path / "data"
    assert not_a(data / "reech", "a dataset") == (
        f"{data / 'reech'} does not exist; the nearest existing folder is {data}, with reach."
    )
    assert f"is {data}, with peg20, reach." in not_a(data / "x" / "y", "a dataset")
    assert f"is {data / 'reach'}, which is empty." in not_a(data / "reach" / "x", "a run")


def test_a_path_of_another_kind_is_named(tmp_path: Path) -> None:
    """Found and expected in one sentence."""
    (tmp_path / "run.json").write_text("{}")
    assert not_a(tmp_path, "a dataset") == f"{tmp_path} is a run, not a dataset."
    assert not_a(tmp_path, "a bundle", "manifest.json").endswith(
        " is a run, not a bundle: it holds no manifest.json."
    )


def test_a_path_relative_to_here_names_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most wrong paths are right ones typed in another folder."""
    monkeypatch.chdir(tmp_path)
    assert not_a(Path("data/peg"), "a dataset") == (
        f"data/peg does not exist; the nearest existing folder is {tmp_path}, which is empty."
    )
