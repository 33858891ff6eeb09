"""Records of `hardware.messages` as ROS messages and back: one table for every middleware.

A packer takes a record and `new(type, **fields)`, which makes a ROS message with the other fields at their defaults; an
unpacker takes any object with the message's attributes. So rclpy's classes and those of `rosbags` share the table.
Stamps survive a round trip exactly from 97 days after the epoch on, and to half a nanosecond before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from hardware import messages as m
from robo_rl.core.errors import BusError
from robo_rl.core.frames import wxyz_of, xyzw_of

New = Callable[..., Any]
NANO = 1_000_000_000
ORDER = re.compile(r"(\d{1,18})/(\d{1,18})")
CHANNELS = {  # encoding -> (bytes per pixel, which of them are red, green and blue)
    "rgb8": (3, (0, 1, 2)),
    "bgr8": (3, (2, 1, 0)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "mono8": (1, (0, 0, 0)),
}


DEPTHS = {"32FC1": "f4", "16UC1": "u2"}  # metres, and millimetres with 0 for what is not known


@dataclass(frozen=True, slots=True)
class Row:
    """One record: its ROS type as in `sensor_msgs/msg/JointState`, and how it is packed and unpacked."""

    ros_type: str
    pack: Callable[[Any, New], Any]
    unpack: Callable[[Any], Any]


def pack(record: m.Message, new: New) -> Any:
    """The record as a ROS message. Raises BusError for shapes that do not fit together."""
    return WIRE[type(record)].pack(record, new)


def unpack(kind: type[Any], message: Any) -> Any:
    """The ROS message as a record. Raises BusError for a message that the record cannot hold."""
    return WIRE[kind].unpack(message)


def check_kind(topic: str, kind: type[Any], message: Any) -> None:
    """Raises BusError for a message of another kind than its topic carries."""
    if type(message) is not kind:
        found = type(message).__name__
        raise BusError(f"'{topic}' carries {kind.__name__}, found {found}: nothing was sent.")


def split_time(time_s: float) -> dict[str, int]:
    """sec and nanosec of builtin_interfaces/Time or Duration, rounded to the nearest nanosecond."""
    if not (math.isfinite(time_s) and -(2.0**31) <= time_s < 2.0**31 - 1):
        raise BusError(f"A time of {time_s} s cannot be sent: expected a finite one within 68 years of zero.")
    sec = math.floor(time_s)
    nanosec = round((time_s - sec) * NANO)  # the difference of the two is exact
    return {"sec": sec + 1, "nanosec": 0} if nanosec == NANO else {"sec": sec, "nanosec": nanosec}


def join_time(time: Any) -> float:
    """Seconds of a Time or Duration."""
    return float(time.sec + time.nanosec / NANO)


def parse_order(text: str) -> tuple[int, int]:
    """(epoch, sequence) of a trajectory's frame_id or a flight command's label; (0, 0) of who counts nothing."""
    match = ORDER.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _header(new: New, stamp_s: float, frame_id: str = "") -> Any:
    stamp = new("builtin_interfaces/msg/Time", **split_time(stamp_s))
    return new("std_msgs/msg/Header", stamp=stamp, frame_id=frame_id)


def _floats(values: Any) -> ndarray:
    return np.asarray(values, dtype=np.float64)


def _xyz(new: New, vector: ndarray, kind: str = "Vector3") -> Any:
    x, y, z = map(float, vector)
    return new(f"geometry_msgs/msg/{kind}", x=x, y=y, z=z)


def _vector(point: Any) -> ndarray:
    return np.array([point.x, point.y, point.z])


def _quaternion(new: New, quat_wxyz: ndarray) -> Any:
    x, y, z, w = map(float, xyzw_of(quat_wxyz))
    return new("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)


def _quat_wxyz(q: Any) -> ndarray:
    return wxyz_of(np.array([q.x, q.y, q.z, q.w]))


def _per_joint(what: str, values: ndarray, names: tuple[str, ...], optional: bool = False) -> ndarray:
    if values.shape[-1:] != (len(names),) and not (optional and values.shape == (0,)):
        raise BusError(f"A {what} has {values.shape[-1]} values for {len(names)} joints ({', '.join(names)}).")
    return values


def check_shapes(record: m.Message) -> None:
    """Raises BusError for a joint state or trajectory whose arrays do not fit its joints."""
    if isinstance(record, m.JointState):
        _per_joint("joint state", record.position_rad, record.names)
        _per_joint("joint velocity", record.velocity_rad_s, record.names, optional=True)
        _per_joint("joint effort", record.effort_nm, record.names, optional=True)
    elif isinstance(record, m.JointTrajectory):
        rows = _per_joint("waypoint", record.position_rad, record.names)
        if rows.ndim != 2 or len(rows) != len(record.times_s):
            raise BusError(f"A trajectory has positions of shape {rows.shape} and {len(record.times_s)} times.")


def _pack_joints(r: m.JointState, new: New) -> Any:
    check_shapes(r)
    return new(
        "sensor_msgs/msg/JointState",
        header=_header(new, r.stamp_s),
        name=list(r.names),
        position=_floats(r.position_rad),
        velocity=_floats(r.velocity_rad_s),
        effort=_floats(r.effort_nm),
    )


def _unpack_joints(msg: Any) -> m.JointState:
    record = m.JointState(
        join_time(msg.header.stamp),
        tuple(msg.name),
        _floats(msg.position),
        _floats(msg.velocity),
        _floats(msg.effort),
    )
    check_shapes(record)
    return record


def _pack_trajectory(r: m.JointTrajectory, new: New) -> Any:
    check_shapes(r)
    rows, times_s = _floats(r.position_rad), _floats(r.times_s)
    points = [
        new(
            "trajectory_msgs/msg/JointTrajectoryPoint",
            positions=row,
            time_from_start=new("builtin_interfaces/msg/Duration", **split_time(time_s)),
        )
        for row, time_s in zip(rows, times_s.tolist(), strict=True)
    ]
    header = _header(new, r.stamp_s, f"{r.epoch}/{r.sequence}")
    return new("trajectory_msgs/msg/JointTrajectory", header=header, joint_names=list(r.names), points=points)


def _unpack_trajectory(msg: Any) -> m.JointTrajectory:
    names = tuple(msg.joint_names)
    rows = [_per_joint("waypoint", _floats(point.positions), names) for point in msg.points]
    return m.JointTrajectory(
        join_time(msg.header.stamp),
        names,
        np.stack(rows) if rows else np.zeros((0, len(names))),
        np.array([join_time(point.time_from_start) for point in msg.points]),
        *parse_order(msg.header.frame_id),
    )


def _pack_flight(r: m.FlightCommand, new: New) -> Any:
    values = _floats(r.values).reshape(-1)
    label = f"{r.epoch}/{r.sequence}"
    only = new("std_msgs/msg/MultiArrayDimension", label=label, size=len(values), stride=len(values))
    return new("std_msgs/msg/Float64MultiArray", layout=new("std_msgs/msg/MultiArrayLayout", dim=[only]), data=values)


def _unpack_flight(msg: Any) -> m.FlightCommand:
    label = msg.layout.dim[0].label if len(msg.layout.dim) else ""
    return m.FlightCommand(_floats(msg.data), *parse_order(label))


def _pack_odometry(r: m.Odometry, new: New) -> Any:
    pose = new(
        "geometry_msgs/msg/Pose",
        position=_xyz(new, r.position_m, "Point"),
        orientation=_quaternion(new, r.quat_wxyz),
    )
    twist = new("geometry_msgs/msg/Twist", linear=_xyz(new, r.velocity_body_m_s), angular=_xyz(new, r.rates_rad_s))
    return new(
        "nav_msgs/msg/Odometry",
        header=_header(new, r.stamp_s, r.frame),
        child_frame_id=r.child_frame,
        pose=new("geometry_msgs/msg/PoseWithCovariance", pose=pose),
        twist=new("geometry_msgs/msg/TwistWithCovariance", twist=twist),
    )


def _unpack_odometry(msg: Any) -> m.Odometry:
    pose, twist = msg.pose.pose, msg.twist.twist
    return m.Odometry(
        join_time(msg.header.stamp),
        _vector(pose.position),
        _quat_wxyz(pose.orientation),
        _vector(twist.linear),
        _vector(twist.angular),
        msg.header.frame_id,
        msg.child_frame_id,
    )


def _pack_imu(r: m.Imu, new: New) -> Any:
    return new(
        "sensor_msgs/msg/Imu",
        header=_header(new, r.stamp_s, r.frame),
        orientation=_quaternion(new, r.quat_wxyz),
        angular_velocity=_xyz(new, r.rates_rad_s),
        linear_acceleration=_xyz(new, r.acceleration_m_s2),
    )


def _unpack_imu(msg: Any) -> m.Imu:
    return m.Imu(
        join_time(msg.header.stamp),
        _quat_wxyz(msg.orientation),
        _vector(msg.angular_velocity),
        _vector(msg.linear_acceleration),
        msg.header.frame_id,
    )


def _pack_image(r: m.Image, new: New) -> Any:
    if r.pixels.dtype != np.uint8 or r.pixels.ndim != 3 or r.pixels.shape[2] != 3:
        raise BusError(f"An image has pixels {r.pixels.dtype} {r.pixels.shape}; expected uint8 (h, w, 3).")
    height, width, _ = r.pixels.shape
    return new(
        "sensor_msgs/msg/Image",
        header=_header(new, r.stamp_s, r.frame),
        height=height,
        width=width,
        encoding="rgb8",
        step=3 * width,
        data=np.ascontiguousarray(r.pixels).reshape(-1),
    )


def _unpack_image(msg: Any) -> m.Image:
    if msg.encoding not in CHANNELS:
        raise BusError(f"An image is encoded as {msg.encoding!r}; expected one of {', '.join(CHANNELS)}.")
    depth, order = CHANNELS[msg.encoding]
    data = np.frombuffer(memoryview(msg.data), np.uint8)
    if msg.step < depth * msg.width or data.size != msg.step * msg.height:
        raise BusError(
            f"An image of {msg.width} x {msg.height} {msg.encoding} has {data.size} bytes in rows of {msg.step}."
        )
    rows = data.reshape(msg.height, msg.step)[:, : depth * msg.width]  # rows may end in padding
    pixels = rows.reshape(msg.height, msg.width, depth)
    whole = pixels if msg.encoding == "rgb8" else pixels[..., order]
    return m.Image(join_time(msg.header.stamp), whole, msg.header.frame_id)


def _pack_depth(r: m.DepthImage, new: New) -> Any:
    depth_m = np.ascontiguousarray(r.depth_m, dtype="<f4")
    if depth_m.ndim != 2:
        raise BusError(f"A depth picture has shape {depth_m.shape}; expected (h, w).")
    height, width = depth_m.shape
    return new(
        "sensor_msgs/msg/Image",
        header=_header(new, r.stamp_s, r.frame),
        height=height,
        width=width,
        encoding="32FC1",
        step=4 * width,
        data=depth_m.view(np.uint8).reshape(-1),
    )


def _unpack_depth(msg: Any) -> m.DepthImage:
    if msg.encoding not in DEPTHS:
        raise BusError(f"A depth picture is encoded as {msg.encoding!r}; expected one of {', '.join(DEPTHS)}.")
    kind = np.dtype(DEPTHS[msg.encoding]).newbyteorder(">" if msg.is_bigendian else "<")
    data = np.frombuffer(memoryview(msg.data), np.uint8)
    if msg.step < kind.itemsize * msg.width or data.size != msg.step * msg.height:
        raise BusError(
            f"A depth picture of {msg.width} x {msg.height} {msg.encoding} has {data.size} bytes in rows of {msg.step}."
        )
    rows = np.ascontiguousarray(data.reshape(msg.height, msg.step)[:, : kind.itemsize * msg.width])
    values = rows.view(kind).reshape(msg.height, msg.width)
    depth_m = values.astype(np.float32)
    if msg.encoding == "16UC1":
        depth_m = np.where(values > 0, depth_m / np.float32(1000.0), np.float32(np.nan))
    return m.DepthImage(join_time(msg.header.stamp), depth_m, msg.header.frame_id)


def _pack_compressed(r: m.CompressedImage, new: New) -> Any:
    data = np.ascontiguousarray(r.data)
    if data.dtype != np.uint8 or data.ndim != 1:
        raise BusError(f"A compressed image is {data.dtype} {data.shape}; expected the bytes as uint8 (n,).")
    header = _header(new, r.stamp_s, r.frame)
    return new("sensor_msgs/msg/CompressedImage", header=header, format=r.format, data=data)


def _unpack_compressed(msg: Any) -> m.CompressedImage:
    data = np.frombuffer(memoryview(msg.data), np.uint8)
    return m.CompressedImage(join_time(msg.header.stamp), data, msg.format, msg.header.frame_id)


def _pack_info(r: m.CameraInfo, new: New) -> Any:
    shapes = {"matrix": (3, 3), "rectification": (3, 3), "projection": (3, 4)}
    if wrong := [name for name, shape in shapes.items() if np.shape(getattr(r, name)) != shape]:
        raise BusError(
            f"A camera's {wrong[0]} has shape {np.shape(getattr(r, wrong[0]))}; expected {shapes[wrong[0]]}."
        )
    return new(
        "sensor_msgs/msg/CameraInfo",
        header=_header(new, r.stamp_s, r.frame),
        height=r.height_px,
        width=r.width_px,
        distortion_model=r.model,
        d=_floats(r.distortion),
        k=_floats(r.matrix).reshape(-1),
        r=_floats(r.rectification).reshape(-1),
        p=_floats(r.projection).reshape(-1),
    )


def _unpack_info(msg: Any) -> m.CameraInfo:
    return m.CameraInfo(
        join_time(msg.header.stamp),
        int(msg.width),
        int(msg.height),
        msg.distortion_model,
        _floats(msg.d),
        _floats(msg.k).reshape(3, 3),
        _floats(msg.r).reshape(3, 3),
        _floats(msg.p).reshape(3, 4),
        msg.header.frame_id,
    )


def _pack_status(r: m.Status, new: New) -> Any:
    values = [new("diagnostic_msgs/msg/KeyValue", key=key, value=value) for key, value in r.values.items()]
    return new("diagnostic_msgs/msg/DiagnosticStatus", level=r.level, name=r.name, message=r.message, values=values)


def _unpack_status(msg: Any) -> m.Status:
    level = msg.level[0] if isinstance(msg.level, bytes) else int(msg.level)  # rclpy has `byte` as bytes of length 1
    return m.Status(msg.name, level, msg.message, {pair.key: pair.value for pair in msg.values})


def _pack_diagnostics(r: m.Diagnostics, new: New) -> Any:
    status = [_pack_status(one, new) for one in r.status]
    return new("diagnostic_msgs/msg/DiagnosticArray", header=_header(new, r.stamp_s), status=status)


def _unpack_diagnostics(msg: Any) -> m.Diagnostics:
    return m.Diagnostics(join_time(msg.header.stamp), tuple(map(_unpack_status, msg.status)))


WIRE: dict[type[Any], Row] = {
    m.JointState: Row("sensor_msgs/msg/JointState", _pack_joints, _unpack_joints),
    m.JointTrajectory: Row("trajectory_msgs/msg/JointTrajectory", _pack_trajectory, _unpack_trajectory),
    m.Floats: Row(
        "std_msgs/msg/Float64MultiArray",
        lambda r, new: new("std_msgs/msg/Float64MultiArray", data=_floats(r.values).reshape(-1)),
        lambda msg: m.Floats(_floats(msg.data)),
    ),
    m.FlightCommand: Row("std_msgs/msg/Float64MultiArray", _pack_flight, _unpack_flight),
    m.Odometry: Row("nav_msgs/msg/Odometry", _pack_odometry, _unpack_odometry),
    m.Imu: Row("sensor_msgs/msg/Imu", _pack_imu, _unpack_imu),
    m.Image: Row("sensor_msgs/msg/Image", _pack_image, _unpack_image),
    m.DepthImage: Row("sensor_msgs/msg/Image", _pack_depth, _unpack_depth),
    m.CompressedImage: Row("sensor_msgs/msg/CompressedImage", _pack_compressed, _unpack_compressed),
    m.CameraInfo: Row("sensor_msgs/msg/CameraInfo", _pack_info, _unpack_info),
    m.Text: Row(
        "std_msgs/msg/String", lambda r, new: new("std_msgs/msg/String", data=r.text), lambda msg: m.Text(msg.data)
    ),
    m.Flag: Row(
        "std_msgs/msg/Bool",
        lambda r, new: new("std_msgs/msg/Bool", data=bool(r.on)),
        lambda msg: m.Flag(bool(msg.data)),
    ),
    m.Diagnostics: Row("diagnostic_msgs/msg/DiagnosticArray", _pack_diagnostics, _unpack_diagnostics),
}
