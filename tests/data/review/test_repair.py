"""Repair restores what follows from intact rows, refuses the rest with its reason, and can be undone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from robo_rl.core.errors import DataError
from robo_rl.data.edit.changes import undo
from robo_rl.data.edit.listing import list_episodes
from robo_rl.data.review.repair import repair
from robo_rl.data.store import DatasetWriter
from robo_rl.data.validate import validate
from tests.data.recordings import STATE_ENV, interrupt, record


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return record(tmp_path / "set", [6, 5, 4])


def test_a_sound_dataset_is_not_touched(dataset: Path) -> None:
    report = repair(dataset)
    assert (report.done, report.refused) == ((), ())
    assert [p.name for p in dataset.parent.iterdir()] == ["set"]


def test_metadata_is_written_anew_from_intact_rows(dataset: Path) -> None:
    """zarr.json of an array and an episode, an index that was cut off, the group, and an empty folder."""
    (dataset / "episodes/000000/state/zarr.json").write_text("{oops")
    (dataset / "episodes/000001/zarr.json").unlink()
    shard = dataset / "episodes/000002/action/c.0.0"
    shard.write_bytes(shard.read_bytes()[: 4 * 2 * 4])
    (dataset / "episodes/zarr.json").unlink()
    shutil.rmtree(dataset / "staging")
    promised = repair(dataset, dry_run=True)
    assert not (dataset / "staging").exists()
    report = repair(dataset)
    assert set(promised.done) <= set(report.done) | {"the empty folder staging/ made"}
    assert len(report.done) == 5
    assert validate(dataset) == []


def test_lost_rows_are_refused_and_dropped_on_demand_with_undo(dataset: Path) -> None:
    """A flipped byte and a lost array; the other episode is repaired all the same."""
    image = dataset / "episodes/000000/image.front/c.0.0.0.0"
    data = bytearray(image.read_bytes())
    data[5] ^= 1
    image.write_bytes(data)
    shutil.rmtree(dataset / "episodes/000001/reward")
    (dataset / "episodes/000002/zarr.json").unlink()
    report = repair(dataset)
    assert {(fault.episode, fault.kind) for fault in report.refused} == {
        (0, "bad_checksum"),
        (1, "missing_array"),
    }
    assert repair(dataset, drop=True).dropped == (0, 1)
    assert [row.number for row in list_episodes(dataset)] == [2]
    assert [fault for fault in validate(dataset) if fault.severity == "error"] == []
    undo(dataset)
    assert [row.number for row in list_episodes(dataset)] == [0, 1, 2]


def test_interrupted_recordings_are_recovered(tmp_path: Path) -> None:
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0)
    interrupt(writer, 1, 3, STATE_ENV)
    writer.close()
    assert repair(tmp_path / "set", dry_run=True).done == ("1 interrupted episode recovered",)
    assert repair(tmp_path / "set").done == ("1 interrupted episode recovered",)
    assert [row.frames for row in list_episodes(tmp_path / "set")] == [3]


def test_no_dataset_no_repair(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a dataset"):
        repair(tmp_path)
