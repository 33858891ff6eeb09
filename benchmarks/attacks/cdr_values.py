"""Comparison of a record with what rosbags reads in the same bytes. Shares no code with the readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

CHANNELS = {"rgb8": (0, 1, 2), "rgba8": (0, 1, 2), "bgr8": (2, 1, 0), "bgra8": (2, 1, 0), "mono8": (0, 0, 0)}
WIDE = {"rgb8": 3, "rgba8": 4, "bgr8": 3, "bgra8": 4, "mono8": 1, "32FC1": 4, "16UC1": 2}


def difference(record: Any, message: Any) -> str:
    """Name of the first field that differs; empty when none does."""
    expected = _EXPECTED[type(record).__name__](message)
    for name, value in expected.items():
        if not _same(getattr(record, name), value):
            return f"{name}: {str(getattr(record, name))[:80]} for {str(value)[:80]}"
    return ""


def _same(found: Any, value: Any) -> bool:
    if isinstance(value, float):
        return abs(found - value) <= 1e-6 or (found != found and value != value)
    if isinstance(value, np.ndarray):
        return found.shape == value.shape and bool(np.array_equal(found, value, equal_nan=True))
    if isinstance(value, _Times):
        return len(found) == len(value) and all(abs(a - b) <= 1e-6 for a, b in zip(found, value, strict=True))
    return bool(found == value)


class _Times(list[float]):
    """Seconds, which rounding may change by a microsecond."""


def _time(stamp: Any) -> float:
    return stamp.sec + stamp.nanosec * 1e-9


def _array(values: Any) -> Any:
    return np.array(list(values), np.float64)


def _three(v: Any) -> Any:
    return np.array([v.x, v.y, v.z])


def _quat(q: Any) -> Any:
    return np.array([q.w, q.x, q.y, q.z])


def _joints(m: Any) -> dict[str, Any]:
    return {
        "stamp_s": _time(m.header.stamp), "names": tuple(m.name), "position_rad": _array(m.position),
        "velocity_rad_s": _array(m.velocity), "effort_nm": _array(m.effort), "frame": m.header.frame_id,
    }  # fmt: skip


def _trajectory(m: Any) -> dict[str, Any]:
    rows = np.array([list(point.positions) for point in m.points], np.float64)
    speeds = [list(point.velocities) for point in m.points]
    every = bool(m.joint_names) and bool(speeds) and all(len(row) == len(m.joint_names) for row in speeds)
    return {
        "frame": m.header.frame_id, "velocity_rad_s": np.array(speeds if every else [], np.float64),
        "stamp_s": _time(m.header.stamp), "names": tuple(m.joint_names),
        "position_rad": rows.reshape(len(m.points), len(m.joint_names)),
        "times_s": _Times(_time(point.time_from_start) for point in m.points),
    }  # fmt: skip


def _jog(m: Any) -> dict[str, Any]:
    return {
        "stamp_s": _time(m.header.stamp), "names": tuple(m.joint_names),
        "velocity_rad_s": _array(m.velocities), "frame": m.header.frame_id,
    }  # fmt: skip


def _twist(m: Any) -> dict[str, Any]:
    return {
        "stamp_s": _time(m.header.stamp), "linear_m_s": _three(m.twist.linear),
        "angular_rad_s": _three(m.twist.angular), "frame": m.header.frame_id,
    }  # fmt: skip


def _flight(m: Any) -> dict[str, Any]:
    return {"stamp_s": _time(m.header.stamp), "values": _array(m.effort), "names": tuple(m.name)}


def _odometry(m: Any) -> dict[str, Any]:
    return {
        "stamp_s": _time(m.header.stamp), "position_m": _three(m.pose.pose.position),
        "quat_wxyz": _quat(m.pose.pose.orientation), "velocity_body_m_s": _three(m.twist.twist.linear),
        "rates_rad_s": _three(m.twist.twist.angular), "frame": m.header.frame_id,
        "child_frame": m.child_frame_id,
    }  # fmt: skip


def _imu(m: Any) -> dict[str, Any]:
    return {
        "stamp_s": _time(m.header.stamp), "quat_wxyz": _quat(m.orientation),
        "rates_rad_s": _three(m.angular_velocity),
        "acceleration_m_s2": _three(m.linear_acceleration), "frame": m.header.frame_id,
    }  # fmt: skip


def _pixels(m: Any) -> Any:
    """(h, w, bytes per pixel), picked byte by byte."""
    wide, data = WIDE[m.encoding], bytes(bytearray(m.data))
    if not data:
        return np.zeros((m.height, m.width, wide), np.uint8)  # a hostile height times no columns
    rows = [data[row * m.step : row * m.step + m.width * wide] for row in range(m.height)]
    return np.array([list(row) for row in rows], np.uint8).reshape(m.height, m.width, wide)


def _image(m: Any) -> dict[str, Any]:
    pixels = _pixels(m)[..., list(CHANNELS[m.encoding])]
    return {"stamp_s": _time(m.header.stamp), "pixels": pixels, "frame": m.header.frame_id}


def _depth(m: Any) -> dict[str, Any]:
    order, raw = ">" if m.is_bigendian else "<", _pixels(m).tobytes()
    kind = {"32FC1": "f4", "16UC1": "u2"}[m.encoding]
    values = np.frombuffer(raw, order + kind).reshape(m.height, m.width).astype(np.float32)
    if m.encoding == "16UC1":
        values = np.array([v / np.float32(1000) if v > 0 else np.nan for v in values.flat], np.float32)
    return {
        "stamp_s": _time(m.header.stamp),
        "depth_m": values.reshape(m.height, m.width),
        "frame": m.header.frame_id,
    }


def _compressed(m: Any) -> dict[str, Any]:
    data = np.array(list(m.data), np.uint8)
    return {"stamp_s": _time(m.header.stamp), "data": data, "format": m.format, "frame": m.header.frame_id}


def _info(m: Any) -> dict[str, Any]:
    return {
        "stamp_s": _time(m.header.stamp), "width_px": m.width, "height_px": m.height,
        "model": m.distortion_model, "distortion": _array(m.d), "matrix": _array(m.k).reshape(3, 3),
        "rectification": _array(m.r).reshape(3, 3),
        "projection": _array(m.p).reshape(3, 4), "frame": m.header.frame_id,
    }  # fmt: skip


def _diagnostics(m: Any) -> dict[str, Any]:
    told = [
        (s.name, int(s.level), s.message, {pair.key: pair.value for pair in s.values}, s.hardware_id)
        for s in m.status
    ]
    return {"stamp_s": _time(m.header.stamp), "status": _Statuses(told)}


class _Statuses:
    """Equal to a sequence of Status records with these parts."""

    def __init__(self, told: list[tuple[Any, ...]]) -> None:
        self.told = told

    def __eq__(self, records: object) -> bool:
        assert isinstance(records, tuple)
        return [(s.name, s.level, s.message, dict(s.values), s.hardware_id) for s in records] == self.told

    __hash__ = None  # type: ignore[assignment]


_EXPECTED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "JointState": _joints,
    "JointTrajectory": _trajectory,
    "Floats": lambda m: {"values": _array(m.data)},
    "FlightCommand": _flight,
    "JointJog": _jog,
    "Twist": _twist,
    "Odometry": _odometry,
    "Imu": _imu,
    "Image": _image,
    "DepthImage": _depth,
    "CompressedImage": _compressed,
    "CameraInfo": _info,
    "Text": lambda m: {"text": m.data},
    "Flag": lambda m: {"on": bool(m.data)},
    "Diagnostics": _diagnostics,
}
