"""Conversion between records and ROS messages: exact for every record, with two distributions' types."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")
from hardware import messages as m
from hardware.bus.dds.cdr import RosTypes, ros_types
from hardware.bus.wire import WIRE, pack, unpack
from hardware.bus.wire_values import join_time, split_time
from robo_rl.core.errors import BusError
from tests.hardware.records import RECORDS, SAMPLES, same


def test_every_record_has_a_ros_type() -> None:
    """And only records that nodes may publish have one."""
    assert set(WIRE) == set(get_args(m.Message)) == set(RECORDS)


@pytest.mark.parametrize("distribution", ["humble", "jazzy"])
@pytest.mark.parametrize("kind", list(RECORDS), ids=lambda kind: kind.__name__)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_round_trip_is_exact(kind: type[Any], distribution: str, data: st.DataObject) -> None:
    """Every bit returns through message and bytes, for any values: NaN, infinities, no joints, no pixels."""
    record, types = data.draw(RECORDS[kind]), ros_types(distribution)
    assert same(unpack(kind, pack(record, types.new)), record)
    assert same(types.decode(types.encode(record), kind), record)


@pytest.mark.parametrize("kind", [m.JointState, m.JointTrajectory], ids=lambda kind: kind.__name__)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_fast_encoder_equals_rosbags(kind: type[Any], data: st.DataObject) -> None:
    """Byte for byte; both decoders read both."""
    record, types = data.draw(RECORDS[kind]), ros_types()
    long = bytes(types.store.serialize_cdr(pack(record, types.new), WIRE[kind].ros_type, little_endian=True))
    assert types.encode(record).hex() == long.hex()
    assert same(types.decode(long, kind), record)
    big = bytes(types.store.serialize_cdr(pack(record, types.new), WIRE[kind].ros_type, little_endian=False))
    assert same(types.decode(big, kind), record)


def test_trajectory_with_accelerations_is_read() -> None:
    """From another node; the record holds its positions, velocities and times."""
    types = ros_types()
    message = pack(m.JointTrajectory(1.0, ("a",), np.ones((1, 1)), np.ones(1)), types.new)
    message.points[0].velocities, message.points[0].accelerations = np.array([2.0]), np.array([3.0])
    cdr = bytes(types.store.serialize_cdr(message, "trajectory_msgs/msg/JointTrajectory"))
    record = types.decode(cdr, m.JointTrajectory)
    assert record.position_rad.tolist() == [[1.0]]
    assert record.velocity_rad_s.tolist() == [[2.0]]


@settings(max_examples=100, deadline=None)
@given(st.floats(-(2.0**31), 2.0**31 - 2))
def test_stamps_are_within_half_a_nanosecond(stamp_s: float) -> None:
    """Exact where a double is coarser than that; a second round trip changes nothing."""
    once = join_time(_Time(**split_time(stamp_s)))
    assert abs(once - stamp_s) <= 0.51e-9
    assert abs(stamp_s) < 2.0**23 or once == stamp_s
    assert join_time(_Time(**split_time(once))) == once


class _Time:
    def __init__(self, sec: int, nanosec: int) -> None:
        assert 0 <= nanosec < 10**9
        self.sec, self.nanosec = sec, nanosec


@pytest.mark.parametrize("stamp_s", [float("nan"), float("inf"), 1e12])
def test_impossible_stamps_are_refused(stamp_s: float) -> None:
    with pytest.raises(BusError, match="cannot be sent"):
        split_time(stamp_s)


def test_quaternion_order_is_converted() -> None:
    """Records use wxyz, ROS messages xyzw."""
    imu = m.Imu(0.0, np.array([0.1, 0.2, 0.3, 0.4]), np.zeros(3), np.zeros(3))
    q = pack(imu, ros_types().new).orientation
    assert (q.w, q.x, q.y, q.z) == (0.1, 0.2, 0.3, 0.4)


def test_frame_id_holds_only_the_frame() -> None:
    """Messages are ordered by stamp. Recordings of earlier versions, with a counter in frame_id, are still
    read.
    """
    trajectory = m.JointTrajectory(12.5, ("a",), np.zeros((1, 1)), np.zeros(1), "base_link")
    message = pack(trajectory, ros_types().new)
    assert message.header.frame_id == "base_link"
    message.header.frame_id = "1700000000000/41"
    assert unpack(m.JointTrajectory, message).stamp_s == 12.5


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (m.JointState(0.0, ("a", "b"), np.zeros(3)), "3 values for 2 joints"),
        (m.JointState(0.0, ("a", "b"), np.zeros(2), np.zeros(1)), "1 values for 2 joints"),
        (m.JointTrajectory(0.0, ("a",), np.zeros((2, 1)), np.zeros(1)), "1 times"),
        (
            m.JointTrajectory(0.0, ("a",), np.zeros((1, 1)), np.zeros(1), "", np.zeros((2, 1))),
            r"of shape \(2, 1\)",
        ),
        (m.Image(0.0, np.zeros((4, 4), np.uint8)), r"uint8 \(h, w, 3\)"),
        (m.DepthImage(0.0, np.zeros((4, 4, 1), np.float32)), r"expected \(h, w\)"),
        (m.CompressedImage(0.0, np.zeros(4)), r"expected the bytes as uint8 \(n,\)"),
        (replace(SAMPLES[m.CameraInfo], matrix=np.eye(2)), r"matrix has shape \(2, 2\)"),
        (m.Diagnostics(0.0, (m.Status("s", 300, ""),)), "cannot be sent"),
    ],
    ids=["names", "velocity", "times", "speeds", "image", "depth", "bytes", "info", "level"],
)
def test_inconsistent_records_are_refused(record: Any, said: str) -> None:
    with pytest.raises(BusError, match=said):
        ros_types().encode(record)


def foreign_image(encoding: str, depth: int, padding: int = 0) -> Any:
    """A 2 x 3 picture with ascending bytes, as another node would send it."""
    step = 3 * depth + padding
    data = np.arange(2 * step, dtype=np.uint8)
    return ros_types().new(
        "sensor_msgs/msg/Image", height=2, width=3, encoding=encoding, step=step, data=data
    )


def test_image_encodings_are_converted_to_rgb() -> None:
    """BGR, an alpha channel, grey, and padded rows."""
    assert unpack(m.Image, foreign_image("bgr8", 3)).pixels[0, 0].tolist() == [2, 1, 0]
    assert unpack(m.Image, foreign_image("rgba8", 4)).pixels[0, 1].tolist() == [4, 5, 6]
    assert unpack(m.Image, foreign_image("mono8", 1)).pixels[1, 2].tolist() == [5, 5, 5]
    assert unpack(m.Image, foreign_image("rgb8", 3, padding=7)).pixels[1, 0].tolist() == [16, 17, 18]
    with pytest.raises(BusError, match="16UC1"):
        unpack(m.Image, foreign_image("16UC1", 2))
    short = foreign_image("rgb8", 3)
    short.data = short.data[:-1]
    with pytest.raises(BusError, match="17 bytes"):
        unpack(m.Image, short)


def test_depth_encodings_are_converted_to_metres() -> None:
    """Millimetres with 0 for unknown, the other byte order, padded rows."""
    mm = foreign_image("16UC1", 2)
    mm.data = np.array([1000, 0, 250, 65535, 1, 2], "<u2").view(np.uint8)
    depth_m = unpack(m.DepthImage, mm).depth_m
    np.testing.assert_allclose(depth_m, [[1.0, np.nan, 0.25], [65.535, 0.001, 0.002]], rtol=1e-6)
    mm.is_bigendian, mm.data = 1, np.array([1000, 0, 250, 65535, 1, 2], ">u2").view(np.uint8)
    assert same(unpack(m.DepthImage, mm).depth_m, depth_m)
    metres = foreign_image("32FC1", 4, padding=4)
    metres.data = (
        np.array([[0.5, np.inf, 2.0, 7.0], [1.0, np.nan, 3.0, 7.0]], "<f4").view(np.uint8).reshape(-1)
    )
    expected = np.array([[0.5, np.inf, 2.0], [1.0, np.nan, 3.0]], np.float32)
    assert same(unpack(m.DepthImage, metres).depth_m, expected)
    with pytest.raises(BusError, match="'rgb8'; expected one of 32FC1, 16UC1"):
        unpack(m.DepthImage, foreign_image("rgb8", 3))
    metres.data = metres.data[:-1]
    with pytest.raises(BusError, match="31 bytes"):
        unpack(m.DepthImage, metres)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(list(RECORDS)))
def test_random_bytes_are_read_or_refused(noise: bytes, kind: type[Any]) -> None:
    """Any bytes give a record or an error of this project, never another exception."""
    with suppress(BusError):
        assert isinstance(ros_types().decode(b"\0\1\0\0" + noise, kind), kind)


def test_an_unknown_distribution_is_named() -> None:
    with pytest.raises(BusError, match="'noetic' is not supported"):
        RosTypes("noetic")
