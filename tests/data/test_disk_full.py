"""A full disk gives one sentence; committed episodes stay, and recorded frames can be recovered."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from hardware.checks.faulty_disk import file_size_limit, full_at_call, small_disk
from robo_rl.core.errors import DataError, DiskFullError
from robo_rl.data.episodes import disk
from robo_rl.data.episodes.atomic_dataset import atomic_dataset
from robo_rl.data.episodes.schema import Codec
from robo_rl.data.store import DatasetWriter, EpisodeStore, recover
from robo_rl.data.validate import validate
from tests.data.recordings import ENV, STATE_ENV, action, add_frames, obs, record, state

ROOT = Path(__file__).parents[2]


def test_a_file_system_of_2_mib(tmp_path: Path) -> None:
    """A real ENOSPC from a tmpfs, during an episode and during a commit."""
    if (prefix := small_disk(tmp_path, 2)) is None:
        pytest.skip("this kernel lets us mount no tmpfs (unshare)")
    command = [*prefix, sys.executable, "tests/data/fill_disk.py", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={"PYTHONPATH": ".", "PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert "The disk is full" in result["message"]
    assert "Committed episodes are safe" in result["message"]
    assert result["committed"] > 10
    assert len(result["salvaged"]) <= 1
    assert result["faults"] == []
    assert result["frames"] == result["kept"] > 0
    assert result["state_ok"]


def test_a_dataset_that_is_not_begun_leaves_no_folder(tmp_path: Path) -> None:
    """It left a hidden folder of an import, and its lock. An empty folder may be a disk of its own."""
    with pytest.raises(DiskFullError, match=f"on the disk of {tmp_path};"):
        DatasetWriter.create(tmp_path / "new" / "set", ENV, min_free_bytes=2**62)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "set").mkdir()
    with pytest.raises(DiskFullError, match=f"on the disk of {tmp_path / 'set'};"):
        DatasetWriter.create(tmp_path / "set", ENV, min_free_bytes=2**62)


def test_frame_that_does_not_fit_is_not_stored(tmp_path: Path) -> None:
    """20 frames of 576 bytes fit 12,000 bytes, the 21st does not: 20 whole frames are committed, arrays in
    step.
    """
    writer = DatasetWriter.create(tmp_path / "set", ENV, min_free_bytes=0)
    with writer.episode() as episode:
        with (
            file_size_limit(12_000),
            pytest.raises(DiskFullError, match=r"frame 20.* path=.*set recover=true"),
        ):
            add_frames(episode, 0, 40)
        episode.add(obs(0, 20), action(0, 20))  # room again: the recording simply goes on
        episode.commit()
    read = EpisodeStore(tmp_path / "set").episode(0)
    np.testing.assert_array_equal(read.obs("state"), [state(0, i) for i in range(21)])
    assert validate(tmp_path / "set") == []


def test_only_a_running_episode_is_to_be_salvaged(tmp_path: Path) -> None:
    """Also an edit on a full disk, without any running episode, told to salvage it."""
    match = r"the edited copy in .* free some space\.$"
    with pytest.raises(DiskFullError, match=match), disk.report_full_disk(tmp_path, "the edited copy"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_an_import_that_does_not_fit_leaves_nothing_to_salvage(tmp_path: Path) -> None:
    """It named the folder of the running import, which is deleted with it."""
    out = tmp_path / "set"
    said = r"The disk is full: .*set could not be written, and nothing of it remains\. Free some space, or"
    with (
        pytest.raises(DiskFullError, match=said),
        atomic_dataset(out, ENV, image_codec="raw", stamps=(), info={}) as writer,
        writer.episode() as episode,
        file_size_limit(12_000),
    ):
        add_frames(episode, 0, 40)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def failing_disk(patch: pytest.MonkeyPatch, writes: int) -> Iterator[None]:
    """The disk takes so many writes more, then fails, also to truncate a file."""
    calls, write = count(), os.write

    def fail(*_: object) -> NoReturn:
        raise OSError(errno.EIO, "Input/output error")

    with patch.context() as failing:
        failing.setattr(os, "write", lambda fd, data: write(fd, data) if next(calls) < writes else fail())
        failing.setattr(os, "ftruncate", fail)
        yield


@pytest.mark.parametrize("codec", ["raw", "jpeg"])
@pytest.mark.parametrize("writes", [1, 3, 5])
def test_columns_stay_in_step_after_a_frame_that_could_not_be_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec, writes: int
) -> None:
    """The next frame is taken only when the bytes of the lost one are gone from every column."""
    writer = DatasetWriter.create(tmp_path / "set", ENV, image_codec=codec, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        for i in range(5):
            episode.add(obs(0, i), action(0, i))
        for _ in range(2):  # the second time, nothing of the first can be taken back yet
            with failing_disk(monkeypatch, writes), pytest.raises(OSError, match="Input/output"):
                episode.add(obs(9, 9), action(9, 9))
        for i in range(5, 10):
            episode.add(obs(0, i), action(0, i))
        episode.commit()
    assert validate(tmp_path / "set") == []
    read = EpisodeStore(tmp_path / "set").episode(0)
    np.testing.assert_array_equal(read.obs("state"), [state(0, i) for i in range(10)])
    np.testing.assert_array_equal(read.array("action"), [action(0, i) for i in range(10)])


@pytest.mark.parametrize("name", ["write", "fsync"])
def test_retry_after_a_full_disk_works(tmp_path: Path, name: str) -> None:
    """ENOSPC at the n-th call, for every n: DiskFullError, earlier episodes intact, then commit or recover
    succeeds.
    """
    path, n = record(tmp_path / "set", [2], env=STATE_ENV), 1
    while _record_with_failure(path, name, n):
        n += 1
    assert [f for f in validate(path) if f.severity == "error"] == []
    assert n > 5
    assert {episode.frames for episode in EpisodeStore(path)} <= {1, 2, 3}


def _record_with_failure(path: Path, name: str, n: int) -> bool:
    writer = DatasetWriter.open(path, min_free_bytes=0, durable=name == "fsync")
    before = len(EpisodeStore(path))
    with full_at_call(n, [name]) as failed, suppress(DiskFullError), writer.episode(seed=n) as episode:
        try:
            add_frames(episode, n, 3, STATE_ENV)
            episode.commit(success=True, final_obs={"state": state(n, 3)})
        except DiskFullError:
            if episode.frames == 0:
                raise
            episode.commit(success=True)
    recover(path)
    assert len(EpisodeStore(path)) in (before, before + 1)
    return failed()


def test_no_frame_is_added_after_a_failed_commit(tmp_path: Path) -> None:
    """The index may already follow the frames: a frame after it would be read from the wrong offset."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0)
    with writer.episode() as episode:
        add_frames(episode, 0, 50, STATE_ENV)
        with file_size_limit(500), pytest.raises(DiskFullError, match="the end of the episode"):
            episode.commit()
        with pytest.raises(DataError, match="takes no more frames"):
            episode.add({"state": state(0, 50)}, action(0, 50))
        episode.commit(success=True)
    assert EpisodeStore(tmp_path / "set").episode(0).frames == 50
    assert validate(tmp_path / "set") == []


def test_recording_needs_min_free_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 GiB is the default minimum. The message states free and required space."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=2**30)
    monkeypatch.setattr(disk, "free_bytes", lambda _: 2**28)
    with pytest.raises(DiskFullError, match=r"Only 256 MiB are free .*; 1,024 MiB are needed"):
        writer.episode()
    with pytest.raises(DiskFullError):
        DatasetWriter.create(tmp_path / "other", STATE_ENV)
    assert list((tmp_path / "set/staging").iterdir()) == []


def test_a_running_episode_stops_while_it_can_still_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a quarter of the minimum `add` refuses, which leaves space for the commit."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=2**20)
    with writer.episode() as episode:
        add_frames(episode, 0, 5, STATE_ENV)
        monkeypatch.setattr(disk, "free_bytes", lambda _: 2**17)
        with pytest.raises(DiskFullError, match="Free some space"):
            add_frames(episode, 0, 1, STATE_ENV)
        episode.commit()
    assert EpisodeStore(tmp_path / "set").episode(0).frames == 5
