"""Recordings for tests, with messages at given times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardware import messages as m
from hardware.bus.dds.cdr import ros_types
from hardware.bus.protocol import Profile
from hardware.bus.wire import WIRE
from hardware.recording.recording import Channel, Recording
from tests.hardware.arm_descriptions import NAMES

S_NS = 1_000_000_000
BEGIN_NS = 1_700_000_000 * S_NS
Said = tuple[str, m.Message, int]  # topic, message, when it was received [ns after the beginning]


def record(folder: Path, said: Iterable[Said], name: str = "episode_1", losses: int = 0) -> Path:
    """As the recorder writes it: full names, MCAP."""
    rows = sorted(said, key=lambda row: row[2])
    types = {topic: WIRE[type(message)].ros_type for topic, message, _ in rows}
    channels = {topic: Channel(ros_type, Profile.STATE) for topic, ros_type in types.items()}
    recording = Recording(folder, name, channels, ros_types())
    for topic, message, at_ns in rows:
        recording.add(topic, ros_types().encode(message), BEGIN_NS + at_ns)
    return recording.commit(losses)


def every(hz: float, seconds: float, first_s: float = 0.0) -> list[int]:
    """Times of a topic [ns]."""
    return [round((first_s + i / hz) * S_NS) for i in range(round(seconds * hz))]


def states(hz: float = 100.0, seconds: float = 2.0, names: Sequence[str] = NAMES) -> list[Said]:
    """States whose joint a is the time of capture, 3 ms before the receipt; with velocities."""
    joints = np.ones(len(names))
    return [
        (
            "joint_states",
            m.JointState(
                (BEGIN_NS + at - 3_000_000) / S_NS, tuple(names), joints * at / S_NS / 4, joints / 4
            ),
            at,
        )
        for at in every(hz, seconds)
    ]


def commands(
    hz: float = 50.0, seconds: float = 2.0, first_s: float = 0.004, topic: str = "command/safe"
) -> list[Said]:
    """Commands of all joints to a quarter of the time of receipt."""
    return [(topic, waypoint(at / S_NS / 4), at) for at in every(hz, seconds, first_s)]


def waypoint(position_rad: Any, names: Sequence[str] = NAMES) -> m.JointTrajectory:
    row = np.broadcast_to(np.asarray(position_rad, dtype=np.float64), (1, len(names))).copy()
    return m.JointTrajectory(0.0, tuple(names), row, np.array([0.02]))


def picture(shade: int, height: int = 6, width: int = 8) -> m.Image:
    return m.Image(0.0, np.full((height, width, 3), shade, dtype=np.uint8))
