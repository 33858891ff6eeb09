"""Durable files: complete old or complete new content."""

from __future__ import annotations

from pathlib import Path

import pytest

from hardware.checks.faulty_disk import full_at_call, full_disk
from robo_rl.core.errors import DataError, DiskFullError
from robo_rl.core.files.durable import read_json, write_atomic, write_json


def test_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """The error is a sentence with its own exit code, the old content stays, no temporary file is left."""
    path = tmp_path / "a.json"
    write_json(path, {"x": 1})
    with full_disk(tmp_path, room_bytes=4), pytest.raises(DiskFullError, match=r"disk is full.*a\.json"):
        write_json(path, {"x": 2})
    with full_at_call(1, ["fsync"]), pytest.raises(DiskFullError, match=r"disk is full.*a\.json"):
        write_json(path, {"x": 2})
    assert read_json(path) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_parents_are_made_and_content_replaced(tmp_path: Path) -> None:
    """The error names the file that the caller gave, not its folder."""
    path = tmp_path / "deep" / "er" / "b"
    write_atomic(path, b"1")
    write_atomic(path, b"2")
    assert path.read_bytes() == b"2"


def test_non_finite_json_is_refused(tmp_path: Path) -> None:
    """Other languages cannot read NaN in JSON, so writing it fails."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "n.json", {"loss": float("nan")})


def test_unreadable_json_is_named(tmp_path: Path) -> None:
    """An absent file and a truncated one have different messages."""
    with pytest.raises(DataError, match="does not exist"):
        read_json(tmp_path / "no.json")
    (tmp_path / "cut.json").write_text('{"a": ')
    with pytest.raises(DataError, match="does not exist"):  # a file was given where a folder belongs
        read_json(tmp_path / "cut.json" / "manifest.json")
    with pytest.raises(DataError, match=r"cut\.json is not valid JSON"):
        read_json(tmp_path / "cut.json")


def test_binary_file_is_named(tmp_path: Path) -> None:
    """A file overwritten with other data gives a sentence, not a UnicodeDecodeError."""
    (tmp_path / "odd.json").write_bytes(b"\x80\x81")
    with pytest.raises(DataError, match=r"odd\.json is not valid JSON"):
        read_json(tmp_path / "odd.json")


def test_error_names_the_requested_file(tmp_path: Path) -> None:
    """The error does not name a temporary file."""
    (tmp_path / "out.json").mkdir()
    with pytest.raises(IsADirectoryError) as error:
        write_atomic(tmp_path / "out.json", b"1")
    assert error.value.filename == str(tmp_path / "out.json")
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_device_is_refused(tmp_path: Path) -> None:
    """Reading /dev/zero would fill the memory."""
    (tmp_path / "run.json").symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"run\.json is not a regular file"):
        read_json(tmp_path / "run.json")
