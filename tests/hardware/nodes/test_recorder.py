"""The recorder: what it records, saves and deletes, and what it reports."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from hardware import messages as m
from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import ros_types
from hardware.bus.in_process import InProcessBus, InProcessWorld
from hardware.bus.protocol import Profile
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.recording.recording import IN_PROGRESS, Recording
from hardware.topics import (
    EPISODE,
    GOAL,
    JOINT_JOG,
    JOINT_STATES,
    RECORDER_REQUEST,
    SAFE,
    SAFETY_STATE,
    camera_info_topic,
    compressed_topic,
    image_topic,
)
from robo_rl.apps.nodes.builders import recorder
from robo_rl.conf.node import RecorderNodeConfig
from robo_rl.core.errors import ConfigError, DataError, MissingDependencyError
from tests.hardware.arm_descriptions import arm
from tests.hardware.bus.dds_nodes import ROOT, wait_for
from tests.hardware.nodes.record import TOPICS
from tests.hardware.nodes.recordings import joints, recorded
from tests.hardware.records import SAMPLES, same


@pytest.mark.parametrize(("transport", "pictures"), [("raw", 1), ("compressed", 1), ("both", 2)])
def test_camera_topics_are_recorded(tmp_path: Path, transport: str, pictures: int) -> None:
    """Raw pictures, JPEG or both of the named cameras, with their calibration."""
    world = InProcessWorld()
    node = recorder(RecorderNodeConfig(out=str(tmp_path), start=True, cameras="top", transport=transport),
                    world.bus("recorder"))  # fmt: skip
    camera = world.bus("camera")
    for topic, kind in (
        (image_topic("top"), m.Image),
        (compressed_topic("top"), m.CompressedImage),
        (camera_info_topic("top"), m.CameraInfo),
    ):
        topic.publisher(camera)(SAMPLES[kind])
    camera.spin(lambda: world.now() >= 0.1)
    node.finish()
    found = recorded(next(tmp_path.glob("episode_*")))
    sent = [name for name in found if name.startswith("/camera/top")]
    assert len(sent) == pictures + 1
    decoded = ros_types().decode(found["/camera/top/camera_info"][0], m.CameraInfo)
    assert same(decoded, SAMPLES[m.CameraInfo])
    assert ("/camera/top/image_raw/compressed" in found) is (transport != "raw")


def test_camera_names_are_joined_by_plus(tmp_path: Path) -> None:
    """As in `robo-rl up arm_sim cameras=...`; a list in brackets would record a camera that does not
    exist.
    """
    world = InProcessWorld()
    node = recorder(
        RecorderNodeConfig(out=str(tmp_path), start=True, cameras="top+side"), world.bus("recorder")
    )
    for name in ("top", "side"):
        image_topic(name).publisher(world.bus(name))(SAMPLES[m.Image])
    world.bus("clock").spin(lambda: world.now() >= 0.1)
    node.finish()
    assert {"/camera/top/image_raw", "/camera/side/image_raw"} <= set(
        recorded(next(tmp_path.glob("episode_*")))
    )
    recorder(RecorderNodeConfig(out=str(tmp_path / "blind"), cameras=""), world.bus("blind")).finish()
    with pytest.raises(ConfigError, match=r"'\[top\]' is no camera's name\. Join names by \+"):
        recorder(RecorderNodeConfig(out=str(tmp_path / "x"), cameras="[top]"), world.bus("x"))


@pytest.mark.parametrize(("namespace", "end"), [("", ""), ("/left", " namespace=/left")])
def test_its_command_reaches_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], namespace: str, end: str
) -> None:
    """The printed command used to call a recorder that is not there, of a robot without a namespace."""
    recorder(RecorderNodeConfig(out=str(tmp_path)), InProcessWorld().bus("recorder", namespace)).finish()
    assert capsys.readouterr().out.splitlines()[0].endswith(f"or by robo-rl call recorder/start{end}")


@pytest.mark.parametrize(("service", "expected"), [("success", True), ("failure", False), ("stop", None)])
def test_outcome_is_saved_with_the_recording(tmp_path: Path, service: str, expected: bool | None) -> None:
    """By a service of its own; the message is part of the recording, for any reader."""
    world = InProcessWorld()
    said: list[str] = []
    node = RecorderNode(world.bus("recorder"), RecorderConfig(str(tmp_path), start=True), [SAFE], said.append)
    robot = world.bus("robot")
    SAFE.publisher(robot)(SAMPLES[m.JointTrajectory])
    robot.spin(lambda: world.now() >= 0.1)
    saved, sentence = world.bus("human").call(f"recorder/{service}", 1.0)
    assert saved
    assert sentence.endswith({True: ", a success", False: ", a failure", None: "messages"}[expected])
    assert said[-1] == sentence  # in the terminal as well
    found = recorded(next(tmp_path.glob("episode_*"))).get("/episode/success", [])
    assert [ros_types().decode(raw, m.Flag).on for raw in found] == ([] if expected is None else [expected])
    assert not world.bus("another").call(f"recorder/{service}", 1.0)[0]
    node.finish()


def test_missing_robot_or_camera_is_reported_at_once(tmp_path: Path) -> None:
    """No robot at all; then a camera that stopped. A camera that never sent anything is no fault."""
    world, said = InProcessWorld(), list[str]()
    topics = [JOINT_STATES, image_topic("top"), image_topic("side")]
    node = RecorderNode(world.bus("recorder"), RecorderConfig(str(tmp_path), start=True), topics, said.append)
    robot, words = world.bus("robot"), list[str]()
    tell = {topic.name: topic.publisher(robot) for topic in topics[:2]}
    first = ("camera/top/image_raw",)
    for heard in (first, ("joint_states", "camera/top/image_raw"), ("joint_states",)):
        for name in heard:
            tell[name](joints(1) if name == "joint_states" else SAMPLES[m.Image])
        robot.spin(iter([False] * 3 + [True]).__next__)
        words.append(node.save_as(True)[1].partition(" messages")[2])
        node.begin()
    assert words == [
        ", but nothing on joint_states, a success",
        ", a success",
        ", but nothing on camera/top/image_raw, a success",
    ]
    node.finish()


def test_latched_messages_are_in_every_recording(tmp_path: Path) -> None:
    """A goal is latched: sent once, it is in the second recording, too; an earlier command is not."""
    world = InProcessWorld()
    topics = [GOAL, SAFE, JOINT_STATES]
    node = RecorderNode(world.bus("recorder"), RecorderConfig(str(tmp_path)), topics, lambda text: None)
    task = world.bus("task")
    tell = JOINT_STATES.publisher(task)
    GOAL.publisher(task)(m.Floats(np.array([0.1, 0.2])))
    SAFE.publisher(task)(SAMPLES[m.JointTrajectory])
    task.spin(lambda: world.now() >= 1.0)
    for _ in range(2):
        node.begin()
        tell(joints(1))
        task.spin(iter([False] * 3 + [True]).__next__)
        assert node.save()[0]
    node.finish()
    for path in sorted(tmp_path.glob("episode_*")):
        (raw,) = recorded(path)["/goal"]
        assert ros_types().decode(raw, m.Floats).values.tolist() == [0.1, 0.2]
        assert "/command/safe" not in recorded(path)


def test_recorded_messages_are_read_back(bus: DdsBus, tmp_path: Path) -> None:
    """Ten states and an image are read back with their times of receipt; the status reports start and stop.

    Topics have their full names, with a leading slash, as in rosbag2.
    """
    said: list[str] = []
    recorder = RecorderNode(bus, RecorderConfig(out=str(tmp_path)), TOPICS, said.append)
    state = bus.publisher("joint_states", m.JointState, Profile.STATE)
    camera = bus.publisher("camera/wrist/image_raw", m.Image, Profile.SENSOR)
    statuses: list[str] = []
    EPISODE.subscribe(bus, lambda text, _: statuses.append(text.text))
    state(joints(99))  # before the start: not recorded
    bus.spin(iter([False] * 3 + [True]).__next__)
    assert recorder.begin()[0]
    assert recorder.begin() == (
        False,
        f"recording {recorder._running.path.name} already; stop or discard it first",
    )
    picture = m.Image(1.7e9, np.arange(27, dtype=np.uint8).reshape(3, 3, 3))
    camera(picture)
    wait_for(bus, lambda: recorder._running.messages == 1)
    for number in range(10):
        state(joints(number))
        wait_for(bus, lambda number=number: recorder._running.messages == number + 2)
    assert recorder.save()[1].endswith("11 messages")
    assert recorder.save() == (False, "nothing is being recorded")
    wait_for(bus, lambda: len(statuses) > 0 and "saved" in statuses[-1])
    recorder.finish()
    (path,) = tmp_path.glob("episode_*")
    found, types = recorded(path), ros_types()
    assert [types.decode(raw, m.JointState).position_rad[0] for raw in found["/lab/joint_states"]] == list(
        range(10)
    )
    assert same(types.decode(found["/lab/camera/wrist/image_raw"][0], m.Image), picture)
    assert [line.split()[0] for line in said] == ["idle:", "recording", "saved"]
    assert not list((tmp_path / IN_PROGRESS).iterdir())


def test_discarded_recording_is_deleted(bus: DdsBus, tmp_path: Path) -> None:
    recorder = RecorderNode(bus, RecorderConfig(out=str(tmp_path), start=True), TOPICS, lambda text: None)
    assert recorder.discard()[1].startswith("discarded episode_")
    assert recorder.discard() == (False, "nothing is being recorded")
    recorder.finish()
    assert not list(tmp_path.glob("episode_*"))
    assert not list((tmp_path / IN_PROGRESS).iterdir())


def test_recorder_saves_when_it_ends(bus: DdsBus, tmp_path: Path) -> None:
    """Two recordings within a second have two names."""
    recorder = RecorderNode(bus, RecorderConfig(out=str(tmp_path)), TOPICS, lambda text: None)
    state = bus.publisher("joint_states", m.JointState, Profile.STATE)
    for save in (recorder.save, recorder.finish):
        recorder.begin()
        state(joints(1))
        wait_for(bus, lambda: recorder._running.messages == 1)
        save()
    assert len(list(tmp_path.glob("episode_*"))) == 2
    for path in tmp_path.glob("episode_*"):
        assert list(recorded(path)) == ["/lab/joint_states"]


@pytest.mark.parametrize("end", ["stop", "success"])
def test_empty_recording_is_deleted(tmp_path: Path, end: str) -> None:
    """A goal, a task text and node statuses alone are no recording; one state is."""
    world, said = InProcessWorld(), list[str]()
    topics = [GOAL, JOINT_STATES, SAFETY_STATE]
    node = RecorderNode(world.bus("recorder"), RecorderConfig(str(tmp_path), start=True), topics, said.append)
    robot = world.bus("robot")
    GOAL.publisher(robot)(m.Floats(np.array([0.1, 0.2])))
    SAFETY_STATE.publisher(robot)(SAMPLES[m.Diagnostics])
    robot.spin(lambda: world.now() >= 0.1)
    saved, sentence = world.bus("human").call(f"recorder/{end}", 1.0)
    assert not saved
    assert "is empty and was discarded: no state, no picture and no command came" in sentence
    assert said[-1] == sentence
    assert not list(tmp_path.glob("episode_*"))
    assert not list((tmp_path / IN_PROGRESS).iterdir())
    node.begin()
    JOINT_STATES.publisher(robot)(joints(1))
    robot.spin(lambda: world.now() >= 0.2)
    assert world.bus("another").call(f"recorder/{end}", 1.0)[0]
    node.finish()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """A folder locked by another process, as by a recorder."""
    hold = "import sys; from robo_rl.core.files.lock import FolderLock\n"
    hold += "lock = FolderLock(sys.argv[1], 'folder'); print('held', flush=True); input()"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield
        other.kill()


def test_two_recorders_do_not_share_a_folder(bus: DdsBus, tmp_path: Path) -> None:
    """The first is another process, and frees the folder when it ends."""
    with held(tmp_path), pytest.raises(DataError, match="Another recorder writes into"):
        RecorderNode(DdsBusLike(), RecorderConfig(out=str(tmp_path)), TOPICS, lambda text: None)
    RecorderNode(bus, RecorderConfig(out=str(tmp_path)), TOPICS, lambda text: None).finish()


class DdsBusLike:
    """A bus that is not used: the folder is checked first."""

    def publisher(self, *_: Any) -> Any:
        return lambda message: None


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Limit of file sizes. The kernel's error is not "no space", but it comes at the same places, also
    on close.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_does_not_end_the_node(bus: DdsBus, tmp_path: Path) -> None:
    """Buffered data cannot be written when the file is closed, either."""
    said: list[str] = []
    recorder = RecorderNode(bus, RecorderConfig(out=str(tmp_path), start=True), TOPICS, said.append)
    with files_of_at_most(60_000):
        for number in range(1000):
            recorder._add("joint_states", ros_types().encode(joints(number)), bus.now())
            if recorder._running is not None:
                recorder._running._flushed_s = 0.0
        assert "broke off after" in said[-1]
        recorder.begin()
        recorder.discard()
    recorder.finish()


def test_a_recording_begins_in_the_second_in_which_another_broke_off(
    bus: DdsBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets another name: the one that broke off keeps its own until it is salvaged."""
    monkeypatch.setattr(time, "strftime", lambda *_: "episode_20260101_000000")
    recorder = RecorderNode(bus, RecorderConfig(str(tmp_path), start=True), TOPICS, lambda text: None)
    recorder._running.abandon()
    recorder._running = None
    assert recorder.begin() == (True, "recording episode_20260101_000000_2")
    recorder.finish()


def test_full_disk_ends_the_recording(bus: DdsBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a report; the next start tries again, and what reached the disk is salvaged later."""
    said: list[str] = []
    recorder = RecorderNode(bus, RecorderConfig(out=str(tmp_path), start=True), TOPICS, said.append)
    recorder._add("joint_states", ros_types().encode(joints(1)), bus.now())
    recorder._running._flush()

    def full(self: Recording) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Recording, "_flush", full)
        recorder._running._flushed_s = 0.0
        recorder._add("joint_states", ros_types().encode(joints(2)), bus.now())
        assert "broke off after 2 messages: [Errno 28] No space left on device" in said[-1]
        assert recorder.save() == (False, "nothing is being recorded")
    recorder.finish()
    RecorderNode(bus, RecorderConfig(out=str(tmp_path)), TOPICS, said.append).finish()
    assert "its 1 messages are kept" in said[-2]


@pytest.mark.parametrize(("word", "reason"), [("start", "cannot record into"), ("stop", "nothing is being")])
def test_a_refused_request_is_answered_once(tmp_path: Path, word: str, reason: str) -> None:
    """A second copy of the answer looked like that to the next request."""
    world, said = InProcessWorld(), list[str]()
    RecorderNode(world.bus("recorder"), RecorderConfig(str(tmp_path)), TOPICS, said.append)
    (tmp_path / IN_PROGRESS).write_text("no folder")
    robot = world.bus("robot")
    for _ in range(2):
        RECORDER_REQUEST.publisher(robot)(m.Text(word))
        late_s = world.now() + 0.1
        robot.spin(lambda late_s=late_s: world.now() >= late_s)
    assert [reason in sentence for sentence in said] == [False, True, True]


def test_topic_of_a_missing_type_is_left_out(tmp_path: Path) -> None:
    """A ROS without control_msgs records all the rest; the filter starts without jogs as well."""

    class Without(InProcessBus):
        def subscribe(self, topic: Any, kind: Any, profile: Any, callback: Any) -> None:
            if kind is m.JointJog:
                raise MissingDependencyError("Run: sudo apt install ros-jazzy-control-msgs")
            super().subscribe(topic, kind, profile, callback)

        def subscribe_all(self, topic: Any, kind: Any, profile: Any, callback: Any) -> None:
            self.subscribe(topic, kind, profile, callback)

    world, said = InProcessWorld(), list[str]()
    buses = [world.bus(name) for name in ("recorder", "filter", "robot")]
    for bus in buses[:2]:
        bus.__class__ = Without
    node = RecorderNode(
        buses[0], RecorderConfig(str(tmp_path), start=True), [JOINT_JOG, JOINT_STATES], said.append
    )
    SafetyFilterNode(buses[1], arm(), say=said.append)
    JOINT_STATES.publisher(buses[2])(joints(1))
    buses[2].spin(lambda: world.now() >= 0.1)
    node.finish()
    assert list(recorded(next(tmp_path.glob("episode_*")))) == ["/joint_states"]
    assert [line for line in said if "control-msgs" in line] == [
        "teleop/joint_jog is not recorded. Run: sudo apt install ros-jazzy-control-msgs",
        "filter: teleop/joint_jog is not subscribed. Run: sudo apt install ros-jazzy-control-msgs",
    ]
