"""The attacks of the store and of data files find what they look for, and find nothing in this version."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from attacks import data_files, store

from robo_rl.data.store import DatasetWriter


def recorded(path: Path) -> store.Told:
    """A dataset of two short episodes, and the log of its recorder."""
    DatasetWriter.create(path, store.ENV, image_codec="raw", min_free_bytes=0).close()
    log = path.parent / "log"
    with log.open("wb", buffering=0) as file:

        class EnoughError(Exception):
            pass

        class TwoEpisodes(random.Random):
            def randint(self, a: int, b: int) -> int:
                self.calls = getattr(self, "calls", 0) + 1
                if self.calls > 2:
                    raise EnoughError
                return 3

        with pytest.raises(EnoughError):
            store.record(path, file.fileno(), 5, TwoEpisodes())
    return store.read_log(log)


def test_kept_promise_is_no_violation(tmp_path: Path) -> None:
    told = recorded(tmp_path / "set")
    assert told.committed == {5: 3, 6: 3}
    assert store.violations(tmp_path / "set", told) == []


def test_lost_or_changed_episodes_are_detected(tmp_path: Path) -> None:
    told = recorded(tmp_path / "set")
    first = next((tmp_path / "set/episodes").glob("[0-9]*"))
    array = zarr.open_array(first / "state", mode="r+")
    array[1, 2] = np.float32(1e3)
    assert store.violations(tmp_path / "set", told) == ["an episode has other values"]
    shutil.rmtree(first)
    assert store.violations(tmp_path / "set", told) == ["a committed episode is lost or cut"]
    told.running = 7, 2
    assert "a frame of the running episode is lost" in store.violations(tmp_path / "set", told)


def test_kills_lose_nothing(tmp_path: Path) -> None:
    """A few; `benchmarks/attack.py --part store` kills 300 times and fills 100 disks."""
    DatasetWriter.create(tmp_path / "set", store.ENV, image_codec="raw", min_free_bytes=0).close()
    for number in range(3):
        assert store.killed(tmp_path, 1000 * number, random.Random(number)) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    assert store.filled(tmp_path, 1000, random.Random(0)) == []


def test_executed_code_and_crashes_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that unpickles leaves the mark; one that dies is named by its signal."""
    import pickle

    mark, report = tmp_path / "canary", tmp_path / "report"
    payload = tmp_path / "payload"
    payload.write_bytes(pickle.dumps(data_files.Payload(mark)))

    def reads(words: list[str]) -> int:
        pickle.loads(payload.read_bytes())
        return 0

    monkeypatch.setattr(data_files, "robo_rl", reads)
    assert data_files.run(["data", "info"], report) == ""
    assert mark.exists()
    monkeypatch.setattr(data_files, "robo_rl", lambda words: os.kill(os.getpid(), signal.SIGKILL))
    assert data_files.run(["data", "info"], report) == "the verb dies by SIGKILL"
    monkeypatch.setattr(data_files, "robo_rl", lambda words: 1)
    assert data_files.run(["data", "info"], report) == "the verb ends with 1"
