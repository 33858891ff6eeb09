"""Cameras that are silent, frozen or late while the recording app records."""

from __future__ import annotations

import numpy as np

from hardware.checks.faulty_bus import Delay, Freeze, Lose
from tests.apps.recording.cell import RecordingCell


def test_a_silent_camera_pauses_the_episode_and_is_named(cell: RecordingCell) -> None:
    """Frames without a new picture are marked by t_receive_ns = -1; half a second of them pauses."""
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.cameras.inject("wrist", Lose())
    cell.run(1.0)
    assert cell.node.episodes.state == "paused"
    assert any("pictures of the camera 'wrist'" in sentence for sentence in cell.said)
    cell.ask(kind="start")
    assert any("paused already" in sentence for sentence in cell.said)
    cell.cameras.cure("wrist")
    cell.run(0.2)
    cell.ask(kind="resume")
    cell.run(0.3)
    cell.ask(kind="save", success=False)
    received = cell.store().episode(0).stamps()["t_receive_ns.image.wrist"]
    assert 3 < (received == -1).sum() < 10
    assert (cell.store().episode(0).stamps()["t_receive_ns.image.front"] != -1).all()


def test_a_frozen_camera_is_named_while_the_arm_moves(cell: RecordingCell) -> None:
    """The same picture of an arm that rests is no fault; of an arm that moves, it is."""
    cell.cameras.inject("front", Freeze())
    cell.run(2.0)
    assert not cell.node.streams.cameras["front"].frozen
    cell.ask(kind="reset")  # the arm jumps, but then rests
    cell.run(2.0)
    assert not cell.node.streams.cameras["front"].frozen
    cell.drive(1.0)
    assert cell.node.streams.cameras["front"].frozen
    assert any("repeat while the arm moves" in sentence for sentence in cell.said)
    cell.ask(kind="start")
    assert cell.node.episodes.state == "idle"


def test_a_camera_that_stutters_is_recorded_with_the_age_of_its_pictures(cell: RecordingCell) -> None:
    """Pictures of one camera come 0.2 s late, and every other one of the other is lost: the episode goes on,
    and the stamps say when each picture was taken.
    """
    cell.cameras.inject("front", Delay(0.2))
    cell.cameras.inject("wrist", Lose(0.5))
    cell.run(0.5)
    cell.ask(kind="start")
    cell.drive(2.0)
    cell.ask(kind="save", success=None)
    episode = cell.store().episode(0)
    stamps = episode.stamps()
    age_s = 1e-9 * (stamps["t_capture_ns"] - stamps["t_capture_ns.image.front"])
    assert 0.15 < np.median(age_s) < 0.3
    assert episode.frames > 30
    wrist = stamps["t_receive_ns.image.wrist"]
    assert len(set(wrist[wrist > 0].tolist())) < 0.8 * episode.frames
