"""Faults of a disk: what is stored before it is full, and which call a kill hits."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hardware.checks.faulty_disk import Moment, full_at_call, full_disk, killed_at


def write(path: Path, data: bytes) -> int:
    """Write by one call, and return how much was stored."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def test_a_disk_is_full_after_its_room(tmp_path: Path) -> None:
    """10 bytes: 6, then 4 of 6, then none; a file beside the folder has room, and so has the cured disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with full_disk(disk, room_bytes=10):
        assert [write(disk / "a", b"123456") for _ in range(2)] == [6, 4]
        with pytest.raises(OSError, match="No space left") as error:
            write(disk / "b", b"1")
        assert error.value.errno == errno.ENOSPC
        assert write(tmp_path / "beside", b"123456") == 6
    assert write(disk / "a", b"!") == 1
    assert (disk / "a").read_bytes() == b"1234561234!"


def test_one_call_fails_and_the_next_does_not(tmp_path: Path) -> None:
    """The second write stores half of its bytes; the third succeeds."""
    with full_at_call(2) as failed:
        write(tmp_path / "a", b"1234")
        assert not failed()
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path / "a", b"5678")
        assert failed()
        write(tmp_path / "a", b"9")
    assert (tmp_path / "a").read_bytes() == b"1234569"


@pytest.mark.parametrize(
    ("moment", "left"),
    [("before", [b"", b"12"]), ("half", [b"1", b"123"]), ("after", [b"12", b"1234"])],
)
def test_a_kill_hits_the_chosen_call(tmp_path: Path, moment: Moment, left: list[bytes]) -> None:
    """Two writes, killed at the first and at the second; at a third there is none, and the work survives."""
    at = tmp_path / "at"

    def work() -> None:
        at.unlink(missing_ok=True)
        write(at, b"12")
        write(at, b"34")

    found = [at.read_bytes() for n in (1, 2) if killed_at(n, work, ["write"], moment)]
    assert found == left
    assert not killed_at(3, work, ["write"], moment)
    assert at.read_bytes() == b"1234"


def test_work_that_fails_is_no_kill() -> None:
    with pytest.raises(RuntimeError, match="ended with 1 instead of being killed at call 5"):
        killed_at(5, lambda: 1 / 0)
