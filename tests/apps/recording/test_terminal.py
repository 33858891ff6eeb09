"""Operation from a terminal: keys become the requests of the page, and the status is one line."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from robo_rl.apps.recording.terminal import Terminal, status_line
from robo_rl.core.errors import ConfigError
from tests.apps.recording.cell import RecordingCell, make_cell


@pytest.fixture
def typist(tmp_path: Path) -> Iterator[tuple[RecordingCell, int]]:
    """A cell that is operated from a pseudo-terminal, and the side on which keys are typed."""
    cell, (keys, terminal) = make_cell(tmp_path / "data"), pty.openpty()
    made = Terminal(cell.shared, len(cell.robot.names), False, cell.world.now, terminal)
    cell.node.on_tick.append(made.tick)
    yield cell, keys
    made.close()
    os.close(keys)
    os.close(terminal)


def test_an_episode_by_keys(typist: tuple[RecordingCell, int]) -> None:
    """Space starts, an arrow that the terminal repeats moves the hand, Enter saves a success."""
    cell, keys = typist
    os.write(keys, b" ")
    cell.run(0.2)
    before = cell.arm.q_rad.copy()
    for _ in range(10):
        os.write(keys, b"\x1b[D")
        cell.run(0.05)
    moved = cell.arm.q_rad.copy()
    assert np.abs(moved - before).max() > 0.02
    cell.run(0.3)
    still = cell.arm.q_rad.copy()
    cell.run(0.3)
    np.testing.assert_allclose(cell.arm.q_rad, still, atol=1e-6)
    os.write(keys, b"\n")
    cell.run(0.1)
    assert [episode.success for episode in cell.store()] == [True]


def test_the_gripper_opens_and_closes_by_keys() -> None:
    """O and L drive it beside a hand that rests; without a gripper, they are told to do nothing."""
    keys, terminal = pty.openpty()
    asked = list[Any]()
    shared = SimpleNamespace(ask=asked.append, view={})
    for gripper in (True, False):
        made = Terminal(cast(Any, shared), 3, gripper, lambda: 0.0, terminal)
        os.write(keys, b"l")
        made.tick()
        made.close()
    assert [request.values for request in asked] == [[0.0] * 6 + [-1.0]]
    said = b""
    while b"The key 'l' does nothing here" not in said:  # a terminal hands over its text in parts
        said += os.read(keys, 1000)
    os.close(keys)
    os.close(terminal)


def test_the_emergency_stop_key_only_presses(typist: tuple[RecordingCell, int]) -> None:
    """Pressed twice in fright, it stays pressed; U releases it."""
    cell, keys = typist
    for typed, pressed in ((b"!", True), (b"!", True), (b"u", True), (b"U", False)):
        os.write(keys, typed)
        cell.run(0.2)
        assert cell.shared.view["estop"] == pressed
    assert not cell.armed


def test_an_unknown_sequence_does_nothing(typist: tuple[RecordingCell, int]) -> None:
    """Page-up, a mouse report or half a sequence start and save nothing, and stop nothing."""
    cell, keys = typist
    os.write(keys, b"\x1b[5~\x1b[1;2R\x00")
    cell.run(0.3)
    assert cell.node.episodes.state == "idle"
    assert cell.armed


def test_the_status_is_one_line(typist: tuple[RecordingCell, int]) -> None:
    """It names the phase of the filter, the episode, and the age of each camera."""
    cell, _ = typist
    line = status_line(cell.shared.view)
    assert "\n" not in line
    view = cell.shared.view
    one = {**view, "episode": {**view["episode"], "count": 1, "successes": 1}}
    assert "| 1 saved, 1 success |" in status_line(one)
    for words in ("[armed]", "idle", "0 saved", "front", "wrist", "Hz"):
        assert words in line


def test_a_pipe_is_no_terminal(tmp_path: Path) -> None:
    """Said at the start, not when the first key is missed."""
    cell, (read, write) = make_cell(tmp_path / "data"), os.pipe()
    with pytest.raises(ConfigError, match="no terminal"):
        Terminal(cell.shared, 3, False, cell.world.now, read)
    os.close(read)
    os.close(write)
