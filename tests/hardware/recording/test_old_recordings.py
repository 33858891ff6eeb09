"""Recordings of earlier versions are imported: relative topic names, and counters in frame_id."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")

from rosbags.rosbag2 import StoragePlugin, Writer

from hardware.bus.dds.cdr import ros_types
from hardware.bus.protocol import Profile
from hardware.bus.wire import WIRE
from hardware.messages import JointState, JointTrajectory
from hardware.recording.bag_reader import Bag
from hardware.recording.recording import VERSION, Channel, Recording
from hardware.recording.streams import read_streams
from tests.hardware.arm_descriptions import NAMES, arm
from tests.hardware.recording.made import BEGIN_NS, commands, record, states

COUNTERS = "1700000000000/{}"  # <epoch>/<sequence>, as frame_id held them


def old(folder: Path, name: str) -> Path:
    """A recording as an earlier version wrote it."""
    types, path = ros_types(), folder / name
    with Writer(path, version=VERSION, storage_plugin=StoragePlugin.MCAP) as writer:
        kinds = {"joint_states": JointState, "command/safe": JointTrajectory}
        connections = {
            topic: writer.add_connection(topic, WIRE[kind].ros_type, typestore=types.store)
            for topic, kind in kinds.items()
        }
        said = sorted([*states(), *commands()], key=lambda row: row[2])
        for i, (topic, message, at_ns) in enumerate(said):
            if isinstance(message, JointTrajectory):
                message = JointTrajectory(
                    0.0, message.names, message.position_rad, message.times_s, COUNTERS.format(i)
                )
            writer.write(connections[topic], BEGIN_NS + at_ns, types.encode(message))
    return path


def test_old_recording_gives_the_same_episode(tmp_path: Path) -> None:
    """The same states and commands at the same times; only the names in the file differ."""
    read = []
    for path in (old(tmp_path, "old"), record(tmp_path, [*states(), *commands()], "new")):
        with closing(Bag(path, ros_types())) as bag:
            assert {"joint_states", "command/safe"} <= bag.names
            assert bag.full_names == ["/command/safe", "/joint_states"]
            read.append(read_streams(bag, arm(), "command/safe", []))
    before, after = read
    assert len(before.commands) == len(after.commands) > 50
    assert np.array_equal(before.commands.times_ns, after.commands.times_ns)
    assert np.array_equal(np.stack(before.commands.values), np.stack(after.commands.values))
    assert [state.names for state in before.states.values] == [NAMES] * len(before.states)


def test_new_recordings_have_full_names(tmp_path: Path) -> None:
    """As in rosbag2: a leading slash, below the recorder's namespace; absolute names are kept."""
    kind = WIRE[JointState].ros_type
    channels = {topic: Channel(kind, Profile.STATE) for topic in ("joint_states", "/diagnostics")}
    recording = Recording(tmp_path, "left", channels, ros_types(), "/left")
    for topic in channels:
        recording.add(topic, ros_types().encode(JointState(1.0, ("a",), np.zeros(1))), BEGIN_NS)
    with closing(Bag(recording.commit(), ros_types(), "left")) as bag:
        assert bag.full_names == ["/diagnostics", "/left/joint_states"]
        assert set(bag.topics) == {"joint_states"}
