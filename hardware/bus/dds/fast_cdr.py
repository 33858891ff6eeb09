"""Direct CDR encoding of the two messages of the control path: joint states and trajectories.

rosbags converts a message field by field, which at some hundred messages per second is most of the cost of
the middleware. The bytes are identical, which a property test checks. Messages with another layout
(big-endian, or trajectories with accelerations) are left to rosbags.

CDR (little-endian): a value is aligned to its size, counted from the end of the 4-byte header. A string is
its length including the final zero (4 bytes) and its text. A sequence is its length (4 bytes) and its items.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import numpy as np
from numpy import ndarray

from hardware.bus.wire_values import seconds, split_time
from hardware.messages import JointState, JointTrajectory
from robo_rl.core.errors import BusError

HEAD = b"\0\1\0\0"
STAMP = struct.Struct("<iI")
LENGTH = struct.Struct("<I")


@lru_cache(maxsize=64)
def _names_block(names: tuple[str, ...], at: int) -> bytes:
    """A sequence of strings that starts at offset `at`, which is a multiple of 4."""
    block = bytearray(LENGTH.pack(len(names)))
    for name in names:
        text = name.encode() + b"\0"
        block += bytes(-(at + len(block)) % 4) + LENGTH.pack(len(text)) + text
    return bytes(block)


# Sequences of names that were decoded, with their bytes. A robot has one or two.
_known: list[tuple[bytes, tuple[str, ...]]] = []
_KEPT = 8


def _floats_block(values: ndarray, at: int) -> bytes:
    """A sequence of doubles at offset `at`, with the padding before it and before its items."""
    before = bytes(-at % 4)
    start = at + len(before) + 4
    return before + LENGTH.pack(len(values)) + (bytes(-start % 8) + values.tobytes() if len(values) else b"")


def encode_joints(r: JointState) -> bytes:
    """CDR of a sensor_msgs/JointState."""
    parts = _header(r.stamp_s, r.frame)
    parts += _names_block(r.names, len(parts) - 4)
    for values in (r.position_rad, r.velocity_rad_s, r.effort_nm):
        parts += _floats_block(np.asarray(values, dtype=np.float64), len(parts) - 4)
    return bytes(parts)


def encode_trajectory(r: JointTrajectory) -> bytes:
    """CDR of a trajectory_msgs/JointTrajectory that has only positions, velocities and times."""
    parts = _header(r.stamp_s, r.frame)
    parts += _names_block(r.names, len(parts) - 4)
    parts += bytes(-len(parts) % 4) + LENGTH.pack(len(r.times_s))
    rows, speeds = (np.asarray(values, dtype=np.float64) for values in (r.position_rad, r.velocity_rad_s))
    for i, time_s in enumerate(np.asarray(r.times_s).tolist()):
        since = split_time(time_s)
        parts += _floats_block(rows[i], len(parts) - 4)
        parts += _floats_block(speeds[i] if speeds.size else speeds, len(parts) - 4)
        parts += bytes(8) + STAMP.pack(since["sec"], since["nanosec"])  # no accelerations, no efforts
    return bytes(parts)


def _header(stamp_s: float, frame: str) -> bytearray:
    """The CDR header and a std_msgs/Header, padded to 4 bytes."""
    stamp, text = split_time(stamp_s), frame.encode() + b"\0"
    parts = bytearray(HEAD + STAMP.pack(stamp["sec"], stamp["nanosec"]) + LENGTH.pack(len(text)) + text)
    return parts + bytes(-len(parts) % 4)


class _Reader:
    """Sequential reader of the bytes after the header. Raises BusError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 4

    def number(self) -> int:
        self.at += -self.at % 4
        value: int = LENGTH.unpack_from(self.data, self.at)[0]
        self.at += 4
        return value

    def time_s(self) -> float:
        self.at += -self.at % 4
        sec, nanosec = STAMP.unpack_from(self.data, self.at)
        self.at += 8
        return seconds(sec, nanosec)

    def text(self) -> bytes:
        length = self.number()
        self.at += length
        if not 0 < length <= len(self.data) or self.at > len(self.data):
            raise BusError("a string is longer than its message.")
        return self.data[self.at - length : self.at - 1]

    def names(self) -> tuple[str, ...]:
        self.at += -self.at % 4
        for block, names in _known:
            if self.data.startswith(block, self.at):
                self.at += len(block)
                return names
        start = self.at
        names = tuple([self.text().decode() for _ in range(self.number())])
        _known.insert(0, (self.data[start : self.at], names))
        del _known[_KEPT:]
        return names

    def floats(self) -> ndarray:
        count = self.number()
        if not count:
            return np.zeros(0)
        self.at += -(self.at - 4) % 8
        values = np.frombuffer(self.data, "<f8", count, self.at)
        self.at += 8 * count
        return values


def decode_joints(data: bytes) -> JointState | None:
    """The record of a joint state; None if it is left to rosbags. Raises BusError for invalid bytes."""
    if data[:2] != HEAD[:2]:
        return None
    try:
        reader = _Reader(data)
        stamp_s, frame, names = reader.time_s(), reader.text().decode(), reader.names()
        return JointState(stamp_s, names, reader.floats(), reader.floats(), reader.floats(), frame)
    except (struct.error, ValueError) as error:
        raise BusError(f"A message cannot be decoded as sensor_msgs/msg/JointState: {error}") from error


def decode_trajectory(data: bytes) -> JointTrajectory | None:
    """The record of a trajectory; None if it is left to rosbags. Raises BusError for invalid bytes."""
    if data[:2] != HEAD[:2]:
        return None
    try:
        reader = _Reader(data)
        stamp_s = reader.time_s()
        frame, names = reader.text().decode(), reader.names()
        rows, speeds, times = [], [], []
        for _ in range(reader.number()):
            rows.append(reader.floats())
            speeds.append(reader.floats())
            if reader.number() or reader.number():
                return None  # accelerations, efforts
            times.append(reader.time_s())
        if any(len(row) != len(names) for row in rows):
            return None  # unpacking the message of rosbags raises the error
        stacked = rows[0][None] if len(rows) == 1 else np.stack(rows) if rows else np.zeros((0, len(names)))
        given = len(names) > 0 and len(speeds) > 0 and all(len(speed) == len(names) for speed in speeds)
        velocity = np.stack(speeds) if given else np.zeros(0)
        return JointTrajectory(stamp_s, names, stacked, np.array(times), frame, velocity)
    except (struct.error, ValueError) as error:
        what = "trajectory_msgs/msg/JointTrajectory"
        raise BusError(f"A message cannot be decoded as {what}: {error}") from error
