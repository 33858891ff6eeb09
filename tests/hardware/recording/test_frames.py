"""Frames of a recording: observation at each tick, and the command until the next tick."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")

from hardware import messages as m
from hardware.bus.dds.cdr import ros_types
from hardware.loop.observation import ArmObserver
from hardware.recording.bag_reader import Bag, find_bags
from hardware.recording.frames import FrameRules, Plan, observations, plan_frames
from hardware.recording.streams import Streams, TopicTrack, read_streams
from robo_rl.core.errors import DataError
from robo_rl.core.spec import ArraySpec
from tests.hardware.arm_descriptions import arm
from tests.hardware.recording.made import (
    BEGIN_NS,
    S_NS,
    Said,
    commands,
    every,
    picture,
    record,
    states,
    waypoint,
)

LOW, HIGH = np.full(3, -1.0), np.full(3, 1.0)
RULES = FrameRules(rate_hz=50.0, low_rad=LOW, high_rad=HIGH, idle_s=None)
CAMERA = "camera/top/image_raw"


def streams_of(path: Path, action: str = "command/safe", pictures: tuple[str, ...] = ()) -> Streams:
    with closing(Bag(path, ros_types())) as bag:
        return read_streams(bag, arm(), action, pictures)


def plan_of(
    tmp_path: Path, said: list[Said], rules: FrameRules = RULES, action: str = "command/safe"
) -> Plan:
    return plan_frames(streams_of(record(tmp_path, said), action), action, rules, goal=False)


def test_newest_message_at_a_time() -> None:
    """A message counts from the time of its receipt; before the first one there is none."""
    track = TopicTrack(np.array([10, 20, 20, 30]), "abcd")
    assert track.newest(np.array([9, 10, 19, 20, 29, 99])).tolist() == [-1, 0, 0, 2, 2, 3]


def test_frame_has_the_newest_state_and_the_next_command(tmp_path: Path) -> None:
    """States every 10 ms, commands every 20 ms from 4 ms on: ticks at 4, 24, ... see the state of 0, 20, ...,
    and the action of the frame at 4 ms is the command of 24 ms, which holds when the next frame is seen.
    """
    plan = plan_of(tmp_path, states() + commands())
    assert (plan.ticks_ns[:3] - BEGIN_NS).tolist() == [4_000_000, 24_000_000, 44_000_000]
    assert plan.state[:3].tolist() == [0, 2, 4]
    np.testing.assert_allclose(plan.action_rad[:2, 0], [0.024 / 4, 0.044 / 4])
    assert plan.frames == len(plan.ticks_ns) - 1 == 99  # until the last state, at 1.99 s
    assert not plan.intervention.any()


def test_frame_has_the_newest_picture(tmp_path: Path) -> None:
    """A camera at 10 Hz whose shade is its number, from 0.05 s on: five frames at 50 Hz show each."""
    shots = [(CAMERA, picture(i), at) for i, at in enumerate(every(10.0, 2.0, 0.05))]
    path = record(tmp_path, states() + commands() + shots)
    streams = streams_of(path, pictures=(CAMERA,))
    plan = plan_frames(streams, "command/safe", RULES, goal=False)
    observer = ArmObserver({"image.top": ArraySpec((6, 8, 3), "uint8")})
    with closing(Bag(path, ros_types())) as bag:
        rows = list(observations(bag, streams, plan, observer, {"image.top": CAMERA}))
    shades = [int(seen["image.top"][0, 0, 0]) for seen, _ in rows]
    assert shades[:11] == [0] * 5 + [1] * 5 + [2]
    assert len(rows) == plan.frames + 1
    _, stamps = rows[0]
    assert stamps["t_receive_ns"] == BEGIN_NS + 50_000_000
    assert stamps["t_capture_ns"] == pytest.approx(BEGIN_NS + 47_000_000, abs=1000)
    assert "t_capture_ns.image.top" not in stamps  # stamped 0 by its sender: nobody knows


def test_rest_is_trimmed_at_both_ends(tmp_path: Path) -> None:
    """1 s at rest, 0.4 s of motion, 1 s at rest: 0.2 s of each rest is kept, and all between."""
    targets = [0.0] * 50 + [0.02 * i for i in range(1, 21)] + [0.4] * 50
    said = [
        ("command/safe", waypoint(target), at)
        for target, at in zip(targets, every(50.0, 2.4, 0.004), strict=True)
    ]
    rules = FrameRules(50.0, LOW, HIGH, idle_s=0.2)
    plan = plan_of(tmp_path, states(seconds=2.5) + said, rules)
    moving = np.flatnonzero(np.abs(np.diff(plan.action_rad[:, 0])) > 0.01)
    assert plan.frames == 10 + 20 + 9  # the command of the last movement holds in the frame before the tail
    assert (moving[0], moving[-1]) == (9, 28)
    assert plan.idle_s == pytest.approx((120 - 39) / 50)
    assert plan_of(tmp_path / "all", states(seconds=2.5) + said).frames == 120


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (states(), "nothing came on 'command/safe'"),
        (commands(), "nothing came on 'joint_states'"),
        (
            states(names=("a", "b", "x")) + commands(),
            "no message on 'joint_states' has all joints of 'small'",
        ),
        (states(seconds=0.01) + commands(), "overlap for less than a period"),
        (
            states()[:50] + states()[130:] + commands(),
            r"nothing came on 'joint_states' for 0.79 s, 1.3 s after",
        ),
        (states() + commands()[:20] + commands()[60:], r"nothing came on 'command/safe' for 0.8. s"),
        (
            states() + [("command/safe", waypoint(0.3), at) for at in every(50.0, 2.0)],
            "never commanded to move",
        ),
        (
            states() + [("command/safe", waypoint(20.0 * at / S_NS), at) for at in every(50.0, 2.0)],
            "check the unit",
        ),
        (
            states() + [("command/safe", waypoint(np.nan), at) for at in every(50.0, 2.0)],
            "commanded to nan rad",
        ),
    ],
)
def test_unusable_recordings_are_reported(tmp_path: Path, said: list[Said], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        plan_of(tmp_path, said)


def test_released_switch_leaves_no_gap(tmp_path: Path) -> None:
    """`teleop/command` is silent while the switch is released; the arm stays at its last target."""
    said = commands(topic="teleop/command")
    plan = plan_of(tmp_path, states() + said[:20] + said[60:], action="teleop/command")
    assert np.unique(plan.action_rad[19:58, 0]).tolist() == [pytest.approx(0.384 / 4)]


def test_actions_slightly_outside_the_range_are_clipped(tmp_path: Path) -> None:
    """A joint that is measured 0.04 rad outside its range was at its end."""
    said = [("command/safe", waypoint(1.04 * at / S_NS / 2), at) for at in every(50.0, 2.0)]
    assert plan_of(tmp_path, states() + said).action_rad.max() == 1.0


def test_measured_positions_can_be_the_action(tmp_path: Path) -> None:
    """A hand-guided arm gets no commands: the action is its position at the next tick."""
    path = record(tmp_path, states())
    plan = plan_frames(streams_of(path, "joint_states"), "joint_states", RULES, goal=False)
    np.testing.assert_allclose(plan.action_rad[:, 1], (plan.ticks_ns[1:] - BEGIN_NS) / S_NS / 4, atol=0.0026)


def test_interventions_are_marked(tmp_path: Path) -> None:
    """An episode of a human alone is a demonstration; with commands of a policy beside it, an
    intervention.
    """
    flag = [
        ("teleop/intervention", m.Flag(True), S_NS),
        ("teleop/intervention", m.Flag(False), 3 * S_NS // 2),
    ]
    assert not plan_of(tmp_path, states() + commands() + flag).intervention.any()
    plan = plan_of(tmp_path / "policy", states() + commands() + commands(topic="command/raw") + flag)
    held = np.flatnonzero(plan.intervention)
    assert (held[0], held[-1]) == (49, 73)  # in force at the frame's end: from 1.004 s, until 1.484 s


def test_namespaces_and_extra_joints(tmp_path: Path) -> None:
    """/left and /right share a recording; a gripper's states share the topic with the arm's."""
    gripper = [
        ("/left/joint_states", m.JointState(0.0, ("gripper",), np.zeros(1)), at)
        for at in every(50.0, 2.0, 0.001)
    ]
    left = [(f"/left/{topic}", message, at) for topic, message, at in states() + commands()]
    right = [
        (f"/right/{topic}", message, at) for topic, message, at in states(seconds=1.0) + commands(seconds=1.0)
    ]
    path = record(tmp_path, left + right + gripper)
    for namespace, frames in (("left", 99), ("/right/", 49)):
        with closing(Bag(path, ros_types(), namespace)) as bag:
            streams = read_streams(bag, arm(), "command/safe", ())
        assert plan_frames(streams, "command/safe", RULES, goal=False).frames == frames
    with (
        closing(Bag(path, ros_types())) as bag,
        pytest.raises(DataError, match="nothing came on 'joint_states'"),
    ):
        read_streams(bag, arm(), "command/safe", ())


def test_recordings_are_sorted_by_number(tmp_path: Path) -> None:
    """The tenth recording of a second comes after the second; a single one is given by its folder or file."""
    for name in ("episode_1_10", "episode_1_2", "episode_1"):
        record(tmp_path, states(seconds=0.1), name)
    assert [path.name for path in find_bags(tmp_path)] == ["episode_1", "episode_1_2", "episode_1_10"]
    (file,) = (tmp_path / "episode_1").glob("*.mcap")
    assert find_bags(file) == find_bags(file.parent) == [file.parent]
    with pytest.raises(DataError, match="nowhere does not exist"):
        find_bags(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="No recordings are in"):
        find_bags(tmp_path / "empty")


def test_a_file_without_metadata_is_a_recording(tmp_path: Path) -> None:
    """As after a download; other files beside it are ignored."""
    (file,) = record(tmp_path / "whole", states(), "episode_1").glob("*.mcap")
    folder = tmp_path / "loose"
    record(folder, states(), "episode_2")
    loose = file.rename(folder / "loose.mcap")
    assert find_bags(loose) == [loose]
    assert find_bags(folder) == [folder / "episode_2", loose]
    with closing(Bag(loose, ros_types())) as bag:
        assert len(list(bag.messages({"joint_states"}))) == 200


def test_broken_recording_is_one_error(tmp_path: Path) -> None:
    """Half of its file is missing, as after an interrupted copy."""
    path = record(tmp_path, states())
    (file,) = path.glob("*.mcap")
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(DataError, match="episode_1 cannot be read as a recording"):
        Bag(path, ros_types())


@pytest.mark.parametrize("kind", ["floats", "states"])
def test_rosbag2_recording_is_imported(tmp_path: Path, kind: str) -> None:
    """`ros2 bag record` in SQLite: absolute names; commands of a forward_command_controller, or a
    leader's states.
    """
    from rosbags.rosbag2 import StoragePlugin, Writer

    topic, types = "/forward_position_controller/commands", ros_types()
    names = ("c", "a", "b")
    path = tmp_path / "bag"
    with Writer(path, version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        state = writer.add_connection("/joint_states", "sensor_msgs/msg/JointState", typestore=types.store)
        sent = {"floats": "std_msgs/msg/Float64MultiArray", "states": "sensor_msgs/msg/JointState"}[kind]
        command = writer.add_connection(topic, sent, typestore=types.store)
        for _, message, at in states():
            writer.write(state, BEGIN_NS + at, types.encode(message))
        for at in every(50.0, 2.0, 0.004):
            values = np.array([0.1, 0.2, 0.3]) * at / S_NS
            message = m.Floats(values) if kind == "floats" else m.JointState(0.0, names, values[[2, 0, 1]])
            writer.write(command, BEGIN_NS + at, types.encode(message))
    plan = plan_frames(streams_of(path, topic[1:]), topic[1:], RULES, goal=False)
    np.testing.assert_allclose(plan.action_rad[0], np.array([0.1, 0.2, 0.3]) * 0.024)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (m.Floats(np.zeros(4)), "a message on 'leader' holds 4 numbers; 'small' has 3 joints"),
        (m.Text("push"), "a message on 'leader' holds 'push'; 'small' has 3 joints"),
        (m.JointState(0.0, ("x", "y", "z"), np.zeros(3)), "no message on 'leader' has all joints of 'small'"),
        (waypoint(0.1, ("a", "b", "x")), "no message on 'leader' has all joints of 'small'"),
    ],
)
def test_commands_of_another_arm_are_reported(tmp_path: Path, message: m.Message, sentence: str) -> None:
    """Another arm's leader, or a wrong topic: one error, and the other recordings are still imported."""
    with pytest.raises(DataError, match=sentence):
        plan_of(tmp_path, [*states(), *(("leader", message, at) for at in every(50.0, 2.0))], action="leader")


def test_trajectories_of_several_waypoints_are_refused(tmp_path: Path) -> None:
    chunk = m.JointTrajectory(0.0, ("a", "b", "c"), np.zeros((2, 3)), np.array([0.02, 0.04]))
    with pytest.raises(DataError, match="2 waypoints, expected one"):
        plan_of(tmp_path, [*states(), ("command/safe", chunk, S_NS)])
