"""Recordings that were cut off are salvaged: no complete message is lost or doubled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from hardware import messages as m
from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import ros_types
from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Profile
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.recording.recording import IN_PROGRESS, Channel, Recording
from hardware.recording.salvage import salvage
from hardware.topics import EPISODE, JOINT_STATES, POLICY_STATUS, TASK
from robo_rl.core.errors import DataError
from tests.hardware.bus.dds_nodes import ROOT, SOON_S, wait_for
from tests.hardware.nodes.record import TOPICS
from tests.hardware.nodes.recordings import joints, recorded


def test_killed_recording_is_salvaged(bus: DdsBus, tmp_path: Path) -> None:
    """A real second process, killed while it records at 100 Hz: no gap before the last message that is
    kept, and only the last moments are missing. The next recorder salvages it and reports so.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hardware.nodes.record", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        publish, sent = bus.publisher("joint_states", m.JointState, Profile.STATE), []
        bus.publisher("task", m.Text, Profile.LATCHED)(m.Text("pick"))
        statuses: list[str] = []
        EPISODE.subscribe(bus, lambda text, _: statuses.append(text.text))
        wait_for(bus, lambda: bool(statuses) and statuses[-1].startswith("recording"))

        def send() -> None:
            sent.append(time.time_ns())
            publish(joints(len(sent) - 1))

        bus.timer(0.01, send)
        start_s = time.monotonic()
        bus.spin(lambda: time.monotonic() - start_s > 3.0)
        killed_ns = time.time_ns()
        process.kill()
    finally:
        process.kill()
        process.communicate(timeout=SOON_S)
    said: list[str] = []
    RecorderNode(bus, RecorderConfig(out=str(tmp_path)), TOPICS, said.append).finish()
    assert "was cut off; its" in said[0]
    (path,) = tmp_path.glob("episode_*")
    found, types = recorded(path), ros_types()
    numbers = [int(types.decode(raw, m.JointState).position_rad[0]) for raw in found["/lab/joint_states"]]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 0.5 * (
        numbers[-1] - numbers[0]
    )  # keep-last 1 may skip on a busy machine, files may not
    assert killed_ns - sent[numbers[-1]] < 2e9
    assert [types.decode(raw, m.Text).text for raw in found["/lab/task"]] == ["pick"]
    assert not list((tmp_path / IN_PROGRESS).iterdir())


def test_killed_recording_without_states_is_removed(tmp_path: Path) -> None:
    """Every recording begins with the task and the goal, and nodes report their status: neither is data."""
    types, world = ros_types(), InProcessWorld()
    topics = (JOINT_STATES, TASK, POLICY_STATUS)
    config = RecorderConfig(str(tmp_path), start=True)
    bus = world.bus("arm")
    tell, report = TASK.publisher(bus), POLICY_STATUS.publisher(bus)
    state = JOINT_STATES.publisher(bus)
    for number, states in enumerate((0, 1)):
        recorder_bus = world.bus(f"recorder{number}")
        recorder = RecorderNode(recorder_bus, config, topics, lambda text: None)
        tell(m.Text("pick"))
        report(m.Diagnostics(0.0, ()))
        for _ in range(states):
            state(joints(1))
        until_s = world.now() + 0.1
        recorder_bus.spin(lambda until_s=until_s: world.now() >= until_s)
        assert recorder._running is not None
        recorder._running._flush()
        recorder._running.abandon()  # killed
        recorder._lock.close()
        recorder_bus.close()
        (sentence,) = salvage(tmp_path, types)
        assert ("before its first state, picture or command, and is removed" in sentence) == (not states)
        assert len(list(tmp_path.glob("episode_*"))) == states


def test_truncated_file_keeps_its_complete_messages(tmp_path: Path) -> None:
    """At every length: no error, no message that was not written, never fewer messages than in a
    shorter file.
    """
    types, channels = ros_types(), {"x": Channel("std_msgs/msg/String", Profile.COMMAND)}
    running = Recording(tmp_path / "a", "episode", channels, types)
    texts = [types.encode(m.Text(f"message {number}")) for number in range(5)]
    for number, cdr in enumerate(texts):
        running.add("x", cdr, number)
        if number == 2:
            running._flush()
    running._flush()
    whole = next((tmp_path / "a" / IN_PROGRESS / "episode").iterdir()).read_bytes()
    running.discard()
    kept = []
    for length in range(0, len(whole) + 1, 23):
        folder = tmp_path / str(length)
        torn = folder / IN_PROGRESS / "episode"
        torn.mkdir(parents=True)
        (torn / "episode.mcap").write_bytes(whole[:length])
        (sentence,) = salvage(folder, types)
        got = recorded(folder / "episode").get("/x", []) if (folder / "episode").exists() else []
        assert got == texts[: len(got)]
        assert ("removed" in sentence) == (not got)
        kept.append(len(got))
    assert kept == sorted(kept)
    assert kept[0] == 0
    assert kept[-1] >= 4


def torn_pictures(folder: Path, count: int) -> None:
    """A recording of pictures of 1 MB each, as after a kill."""
    types, channels = ros_types(), {"x": Channel("sensor_msgs/msg/Image", Profile.SENSOR)}
    running = Recording(folder, "episode", channels, types)
    cdr = types.encode(m.Image(0.0, np.zeros((1000, 350, 3), np.uint8)))
    for number in range(count):
        running.add("x", cdr, number)
        running._flush()
    running.abandon()


def test_large_recording_is_salvaged_in_pieces(tmp_path: Path) -> None:
    """48 MB of pictures, of which a few at a time are in memory."""
    torn_pictures(tmp_path, 48)
    types = ros_types()
    tracemalloc.start()
    try:
        (sentence,) = salvage(tmp_path, types)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "its 48 messages are kept" in sentence
    assert peak < 12e6


def test_salvage_is_repeated_after_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn_pictures(tmp_path, 2)

    def full(self: Recording) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Recording, "commit", full)
        with pytest.raises(
            DataError,
            match=r"episode was cut off and cannot be saved .*No space left on device.* Free as much space",
        ):
            salvage(tmp_path, ros_types())
    assert [path.name for path in tmp_path.iterdir()] == [IN_PROGRESS]
    (sentence,) = salvage(tmp_path, ros_types())
    assert "its 2 messages are kept" in sentence


class KilledError(BaseException):
    """What a kill looks like to the code around it."""


def kill_after(count: int, patch: pytest.MonkeyPatch) -> None:
    """Raise as soon as so many folders were renamed or deleted."""
    done = 0

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **settings: Any) -> Any:
            nonlocal done
            result, done = act(*args, **settings), done + 1
            if done == count:
                raise KilledError
            return result

        return wrapped

    patch.setattr(Path, "rename", counted(Path.rename))
    patch.setattr(shutil, "rmtree", counted(shutil.rmtree))


@pytest.mark.parametrize("steps", range(1, 6))
def test_a_kill_during_the_salvage_neither_loses_nor_doubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """After any step; a second kill in the same place changes nothing, either."""
    torn_pictures(tmp_path, 2)
    for _ in range(2):
        with monkeypatch.context() as patch, suppress(KilledError):
            kill_after(steps, patch)
            salvage(tmp_path, ros_types())
    salvage(tmp_path, ros_types())
    (path,) = tmp_path.glob("episode*")
    assert len(recorded(path)["/x"]) == 2
    assert {path.name for path in tmp_path.iterdir()} == {IN_PROGRESS, path.name}
    assert not list((tmp_path / IN_PROGRESS).iterdir())
