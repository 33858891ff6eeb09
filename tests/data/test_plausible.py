"""Data unfit for training are refused before training, with the episode's number."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.core.errors import DataError
from robo_rl.core.files import durable
from robo_rl.data.episodes.shard import file_crc32c
from robo_rl.data.plausible import check_action, check_episodes
from robo_rl.data.store import EpisodeStore
from tests.data.recordings import ENV, STATE_ENV, record


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return record(tmp_path / "set", [4, 5], env=STATE_ENV)


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _write(array: Path, index: int, value: float) -> None:
    """Change one number of a stored array and its checksum, as a faulty recorder would write them."""
    shard = next(array.glob("c.*"))
    data = np.memmap(shard, dtype="float32", mode="r+")
    data[index] = value
    data.flush()
    path = array.parent / "episode.json"
    meta = json.loads(path.read_text())
    entry = meta["arrays"][array.name]
    entry["crc32c"] = f"{file_crc32c(shard, 4 * int(np.prod(entry['shape']))):08x}"
    path.write_text(json.dumps(meta))


def test_valid_episodes_pass(dataset: Path) -> None:
    check_episodes(EpisodeStore(dataset))


def test_a_flipped_exponent_of_an_action_is_noticed(dataset: Path) -> None:
    """Byte 3 of a float32 holds the exponent: 0.5 with bit 0x40 flipped is 1.7e38, which ruins a network."""
    flipped = np.array([0.5], np.float32).view(np.uint32) ^ 0x40000000
    _write(dataset / "episodes/000001/action", 2 * 2, float(flipped.view(np.float32)[0]))
    with pytest.raises(
        DataError, match=r"Episode 000001 .*dimension 0 .* in frame 2, far outside its limits -1 to 1"
    ):
        check_episodes(EpisodeStore(dataset))


@pytest.mark.parametrize("name", ["state", "action", "reward"])
def test_non_finite_numbers_are_refused(dataset: Path, name: str) -> None:
    _write(dataset / "episodes/000000" / name, 3, np.nan)
    with pytest.raises(DataError, match=rf"Episode 000000 .*'{name}' is not finite in row \d"):
        check_episodes(EpisodeStore(dataset))


def test_how_far_an_action_may_lie_outside() -> None:
    """Limits -2..2 have a range of 4: 5.9 is overshoot, 6.1 is another unit."""
    spec = ENV.action
    check_action(np.array([[0.0, 5.9]]), spec, "here", "")
    with pytest.raises(DataError, match=r"here: dimension 1 of the action is 6\.1 in frame 0"):
        check_action(np.array([[0.0, 6.1]]), spec, "here", "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"frames": -5}, "frames is -5, a whole number of at least 0 was expected"),
        ({"frames": 2.5}, "frames is 2.5"),
        ({"success": "yes"}, "success is 'yes', true or false was expected"),
        ({"complete": 1}, "complete is 1, true or false was expected"),
    ],
)
def test_labels_of_another_type_are_refused(dataset: Path, change: dict[str, Any], words: str) -> None:
    """bool("no") is True: a label must be true, false or null."""
    _edit(dataset / "episodes/000001/episode.json", **change)
    with pytest.raises(DataError, match=words):
        EpisodeStore(dataset)


def test_a_file_that_may_not_be_read_is_not_called_broken(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message does not advise to delete an episode that may be intact."""
    monkeypatch.setattr(durable, "read_regular", _not_permitted)
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\).*permissions"):
        EpisodeStore(dataset)


def _not_permitted(path: Path) -> str:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def test_files_of_another_dataset_are_refused(dataset: Path, tmp_path: Path) -> None:
    """episode.json or dataset.json copied from elsewhere is named in the error; numpy shows no traceback."""
    other = record(tmp_path / "other", [4, 7])
    copy = Path(shutil.copytree(dataset, tmp_path / "copy"))
    shutil.copy(other / "episodes/000001/episode.json", copy / "episodes/000001/episode.json")
    with pytest.raises(DataError, match=r"000001.*(is missing|is truncated|has \d+ bytes)"):
        check_episodes(EpisodeStore(copy))
    shutil.copy(other / "dataset.json", dataset / "dataset.json")
    with pytest.raises(DataError, match=r"Episode 000000 .* has no array 'image.front'"):
        check_episodes(EpisodeStore(dataset))
