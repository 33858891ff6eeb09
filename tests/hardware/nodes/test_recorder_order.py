"""Recordings hold every state and command in the order of receipt, whatever interrupted the recorder."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from rosbags.highlevel import AnyReader

from hardware import messages as m
from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import ros_types
from hardware.bus.in_process import InProcessWorld
from hardware.bus.quality import RECORDED
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.recording.recording import LOSSES
from hardware.topics import JOINT_STATES, RECORDER_REQUEST, SAFE
from tests.hardware.arm_descriptions import command, state
from tests.hardware.bus.dds_nodes import spin_for
from tests.hardware.scripted_bus import ScriptedBus

TOPICS = (JOINT_STATES, SAFE)
COUNT = 100


def read(folder: Path) -> list[tuple[str, int, int]]:
    """(topic, stamp [ns], number in its first joint) of the only recording, in the order of reading."""
    (path,) = folder.glob("episode_*")
    kinds = {"joint_states": m.JointState, "command/safe": m.JointTrajectory}
    rows = []
    with AnyReader([path], default_typestore=ros_types().store) as reader:
        for connection, stamp_ns, raw in reader.messages():
            record = ros_types().decode(bytes(raw), kinds[connection.topic.lstrip("/")])
            rows.append((connection.topic.lstrip("/"), stamp_ns, int(np.ravel(record.position_rad)[0])))
    return rows


def test_messages_of_one_instant_are_all_recorded(tmp_path: Path) -> None:
    """Three states and a command in one callback, at one instant: a queue of one kept only the last state."""
    world = InProcessWorld()
    node = RecorderNode(
        world.bus("recorder"), RecorderConfig(str(tmp_path), start=True), TOPICS, lambda _: None
    )
    robot = world.bus("robot")
    tell, send = JOINT_STATES.publisher(robot), SAFE.publisher(robot)

    def speak() -> None:
        for number in range(3):
            tell(state([number, 0.0, 0.0]))
            send(command([10.0 + number, 0.0, 0.0]))

    robot.timer(0.1, speak)
    robot.spin(lambda: world.now() >= 0.15)
    node.finish()
    rows = read(tmp_path)
    assert [number for _, _, number in rows] == [0, 10, 1, 11, 2, 12]
    assert {stamp for _, stamp, _ in rows} == {100_000_000}


def test_busy_recorder_loses_no_message(domain: int, tmp_path: Path) -> None:
    """A disk that blocks for 0.5 s, over DDS: 100 states and 100 commands in turn are read in that order."""
    with closing(DdsBus("robot", domain=domain)) as bus, closing(DdsBus("recorder", domain=domain)) as other:
        node = RecorderNode(other, RecorderConfig(str(tmp_path), start=True), TOPICS, lambda _: None)
        tell, send = JOINT_STATES.publisher(bus), SAFE.publisher(bus)
        spin_for(other, 0.5)
        for number in range(COUNT):
            tell(state([number, 0.0, 0.0]))
            send(command([number, 0.0, 0.0], number))
            time.sleep(0.002)
        spin_for(other, 0.5)
        node.finish()
    rows = read(tmp_path)
    assert [(topic, number) for topic, _, number in rows] == [
        (topic.name, number) for number in range(COUNT) for topic in TOPICS
    ]
    spans_s = np.diff([stamp for topic, stamp, _ in rows if topic == SAFE.name]) / 1e9
    assert spans_s.min() > 0.001  # as they were sent, not as they were handled


@pytest.mark.parametrize(("count", "lost"), [(2000, False), (RECORDED + 100, True)])
def test_a_long_stall_loses_nothing_or_is_reported(
    domain: int, tmp_path: Path, count: int, lost: bool
) -> None:
    """2,000 states and commands, four seconds at 500 Hz, are kept. A full queue is reported at once and with
    the recording, in the answer and in its metadata.
    """
    said: list[str] = []
    with closing(DdsBus("robot", domain=domain)) as bus, closing(DdsBus("recorder", domain=domain)) as other:
        node = RecorderNode(other, RecorderConfig(str(tmp_path), start=True), TOPICS, said.append)
        tell, send = JOINT_STATES.publisher(bus), SAFE.publisher(bus)
        spin_for(other, 0.5)
        for number in range(count):
            tell(state([number, 0.0, 0.0]))
            send(command([number, 0.0, 0.0], number))
        late_s, kept = time.monotonic() + 30.0, len(TOPICS) * min(count, RECORDED)
        other.spin(lambda: node._running.messages == kept or time.monotonic() > late_s)
        spin_for(other, 0.6)  # for the report
        answer = node.save()[1]
        node.finish()
    for topic in TOPICS:
        numbers = [number for name, _, number in read(tmp_path) if name == topic.name]
        assert numbers == list(range(count))[-min(count, RECORDED) :]
    (path,) = tmp_path.glob("episode_*/metadata.yaml")
    noted = yaml.safe_load(path.read_text())["rosbag2_bagfile_information"]["custom_data"]
    assert (noted or {}) == ({LOSSES: "2"} if lost else {})
    assert [sentence for sentence in said if "rmem_max" in sentence] == said[1:2] * lost
    assert (
        answer.endswith(", but 2 or more datagrams were lost: this computer was too busy to receive them")
        == lost
    )


@pytest.mark.parametrize("place", range(8))
def test_what_was_sent_before_a_request_is_handled_before_it(
    domain: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """A state, a command and `stop`, sent while the recorder takes its messages, after so many readers."""
    sent = False
    with closing(DdsBus("robot", domain=domain)) as bus, closing(DdsBus("recorder", domain=domain)) as other:
        node = RecorderNode(other, RecorderConfig(str(tmp_path), start=True), TOPICS, lambda _: None)
        tell, send, ask = (topic.publisher(bus) for topic in (JOINT_STATES, SAFE, RECORDER_REQUEST))
        spin_for(other, 0.3)
        takes, take = 0, other._types.take

        def interrupted(reader: Any, most: int) -> Any:
            nonlocal takes, sent
            takes += 1
            if takes == place + 1:
                tell(state([7, 0.0, 0.0]))
                send(command([7, 0.0, 0.0], 7))
                ask(m.Text("stop"))
                sent = True
            return take(reader, most)

        assert len(other._readers) == 8  # five services, the topic of requests, states, commands
        monkeypatch.setattr(other._types, "take", interrupted)
        late_s = time.monotonic() + 5.0
        other.spin(lambda: (sent and node.at_rest) or time.monotonic() > late_s)
        assert node.at_rest
    assert {(topic, number) for topic, _, number in read(tmp_path)} == {(topic.name, 7) for topic in TOPICS}


class Interrupted(ScriptedBus):
    """A clock whose program is interrupted for 20 ms before every second reading."""

    reads = 0

    def stamp(self) -> float:
        self.reads += 1
        if self.reads % 2:
            self.now_s += 0.02
        return super().stamp()


def test_interruptions_keep_the_order(tmp_path: Path) -> None:
    """Ten states, 5 ms apart. With the two clocks read one after the other, a later state came first."""
    bus = Interrupted()
    node = RecorderNode(bus, RecorderConfig(str(tmp_path), start=True), TOPICS, lambda _: None)
    for number in range(10):
        bus.heard[JOINT_STATES.name](state([number, 0.0, 0.0]), 10.0 + 0.005 * number)
        bus.now_s = 20.0 + 0.005 * number
    node.finish()
    rows = read(tmp_path)
    assert [number for _, _, number in rows] == list(range(10))
    assert np.diff([stamp for _, stamp, _ in rows]) == pytest.approx([5e6] * 9, abs=300)
