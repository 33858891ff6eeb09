"""A dataset whose folder goes away while the app runs: the arm stays under control, and no frame that was
written is lost.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.apps.recording import edits
from robo_rl.apps.recording.terminal import status_line
from robo_rl.core.errors import LockedError
from robo_rl.data.episodes.dataset_writer import DatasetWriter
from robo_rl.data.store import EpisodeStore, recover
from tests.apps.recording.cell import RecordingCell, make_cell


@pytest.fixture
def cell(tmp_path: Path) -> RecordingCell:
    return make_cell(tmp_path / "data")


def away(cell: RecordingCell) -> Path:
    """Where the folder is while it cannot be reached."""
    return cell.out.with_name("away")


def test_an_episode_pauses_and_goes_on(cell: RecordingCell) -> None:
    """The page shows an error, the arm is still driven by nobody but the operator, and the frames before and
    after are one episode.
    """
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.out.rename(away(cell))
    cell.run(0.3)
    assert cell.node.episodes.state == "paused"
    assert cell.shared.view["disk_gb"] is None
    assert "dataset UNREACHABLE" in status_line(cell.shared.view)
    assert any(
        "The episode is paused: The dataset" in said and "cannot be reached" in said for said in cell.said
    )
    assert {n["level"] for n in cell.shared.view["notices"] if "cannot be reached" in n["text"]} == {"error"}
    assert cell.armed
    away(cell).rename(cell.out)
    cell.ask(kind="resume")
    cell.drive(0.5)
    cell.ask(kind="save", success=True)
    (episode,) = cell.store()
    assert episode.frames > 15
    assert np.abs(np.diff(episode.obs("state")[:, 0])).max() < 0.1
    assert cell.shared.view["disk_gb"] is not None


def test_what_cannot_be_saved_is_kept_for_the_next_try(cell: RecordingCell) -> None:
    """Mark, instruct, save and discard are refused by a sentence; then the episode is saved."""
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.out.rename(away(cell))
    asked: list[dict[str, Any]] = [
        {"kind": "mark", "reward": 1.0},
        {"kind": "instruct", "text": "pull"},
        {"kind": "discard"},
        {"kind": "save", "success": True},
    ]
    for request in asked:
        cell.ask(**request)
    assert "If its disk was unplugged, connect it and restart the app, which salvages" in cell.said[-1]
    assert cell.said[-1].endswith("Once the folder is back, save again: the frames are kept.")
    assert cell.node.episodes.state == "ended"
    away(cell).rename(cell.out)
    cell.ask(kind="save", success=True)
    assert cell.store().episode(0).success


def test_no_episode_starts_and_a_drive_goes_on(cell: RecordingCell) -> None:
    cell.out.rename(away(cell))
    cell.ask(kind="start")
    assert cell.node.episodes.state == "idle"
    before = cell.arm.q_rad.copy()
    cell.drive(0.5)
    assert np.abs(cell.arm.q_rad - before).max() > 0.05
    away(cell).rename(cell.out)


def test_the_app_ends_and_the_next_start_salvages(cell: RecordingCell) -> None:
    """Without a traceback."""
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.out.rename(away(cell))
    assert "the next start salvages the episode" in cell.node.stop("SIGTERM")
    (salvaged,) = recover(away(cell))
    assert salvaged.frames > 5


def test_an_edit_whose_dataset_another_process_takes(
    cell: RecordingCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once, tried again, and the next episode starts."""
    monkeypatch.setattr(edits, "RETRY_S", 0.0)
    cell.ask(kind="start")
    cell.run(0.3)
    cell.ask(kind="save", success=True)
    cell.run(2.0)
    opened, tries = DatasetWriter.open, [0]

    def taken(path: Path, **options: Any) -> DatasetWriter:
        tries[0] += 1
        if tries[0] < 4:
            raise LockedError(f"{path} is in use by process 1.")
        return opened(path, **options)

    monkeypatch.setattr(DatasetWriter, "open", taken)
    cell.edit(kind="relabel", episodes=[0], success=False)
    assert tries[0] == 4
    assert sum("No episode can start" in said for said in cell.said) == 1
    cell.ask(kind="start")
    cell.run(0.3)
    cell.ask(kind="save", success=True)
    assert [episode.success for episode in EpisodeStore(cell.out)] == [False, True]


def test_an_edit_whose_dataset_is_gone(cell: RecordingCell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bus's thread goes on, and the dataset is opened again when it is back."""
    monkeypatch.setattr(edits, "RETRY_S", 0.0)
    cell.ask(kind="start")
    cell.run(0.3)
    cell.ask(kind="save", success=True)
    cell.run(2.0)
    cell.out.rename(away(cell))
    cell.ask(kind="relabel", episodes=[0], success=False)
    cell.run(0.5)
    assert cell.node.episodes.state == "editing"
    away(cell).rename(cell.out)
    until_s = time.monotonic() + 30.0
    while cell.node.episodes.state != "idle" and time.monotonic() < until_s:
        cell.run(0.5)
        time.sleep(0.01)  # another thread edits, in real time
    assert cell.node.episodes.state == "idle"
