"""Messages of a robot, and those that a recording holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rosbags.highlevel import AnyReader

from hardware import messages as m
from hardware.bus.dds.cdr import ros_types


def recorded(path: Path) -> dict[str, list[bytes]]:
    """Topic -> messages, read by rosbags' reader, which follows the index."""
    found: dict[str, list[bytes]] = {}
    with AnyReader([path], default_typestore=ros_types().store) as reader:
        for connection, _, raw in reader.messages():
            found.setdefault(connection.topic, []).append(bytes(raw))
    return found


def joints(number: int) -> m.JointState:
    return m.JointState(1.7e9 + number, ("a",), np.array([float(number)]))
