"""Conversion of the records of `hardware.messages` to ROS messages and back: one table for every middleware.

A packer takes a record and `new(type, **fields)`, which makes a ROS message; fields that are not given have
their defaults. An unpacker takes any object with the attributes of the message. The table therefore works
with the classes of rclpy and of `rosbags`. Stamps later than 97 days after the Unix epoch survive a round
trip exactly, earlier ones to half a nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from hardware import messages as m
from hardware.bus import wire_pictures as pictures
from hardware.bus.wire_values import (
    New,
    floats,
    header,
    join_time,
    quat_wxyz,
    quaternion,
    split_time,
    vector,
    xyz,
)
from robo_rl.core.errors import BusError


@dataclass(frozen=True, slots=True)
class WireFormat:
    """ROS type of a record, such as `sensor_msgs/msg/JointState`, with its packer and unpacker."""

    ros_type: str
    pack: Callable[[Any, New], Any]
    unpack: Callable[[Any], Any]


def pack(record: m.Message, new: New) -> Any:
    """The ROS message of a record. Raises BusError for inconsistent shapes."""
    return WIRE[type(record)].pack(record, new)


def unpack(kind: type[Any], message: Any) -> Any:
    """The record of a ROS message. Raises BusError for a message that the record cannot represent."""
    return WIRE[kind].unpack(message)


def check_kind(topic: str, kind: type[Any], message: Any) -> None:
    """Raise BusError for a message whose type is not that of its topic."""
    if type(message) is not kind:
        found = type(message).__name__
        raise BusError(f"'{topic}' carries {kind.__name__}, found {found}: nothing was sent.")


_SHAPES: dict[type[Any], tuple[tuple[str, tuple[int, ...]], ...]] = {
    m.Odometry: (
        ("position_m", (3,)),
        ("quat_wxyz", (4,)),
        ("velocity_body_m_s", (3,)),
        ("rates_rad_s", (3,)),
    ),
    m.Twist: (("linear_m_s", (3,)), ("angular_rad_s", (3,))),
    m.Imu: (("quat_wxyz", (4,)), ("rates_rad_s", (3,)), ("acceleration_m_s2", (3,))),
}


def _per_joint(what: str, values: ndarray, names: tuple[str, ...], optional: bool = False) -> ndarray:
    shape = np.shape(values)
    if shape[-1:] != (len(names),) and not (optional and shape == (0,)):
        raise BusError(
            f"A {what} has {shape[-1] if shape else 'no'} values for {len(names)} joints "
            f"({', '.join(names[:10])})."
        )
    return values


def check_shapes(record: m.Message) -> None:
    """Raise BusError for a record whose arrays have other shapes than its fields promise."""
    if wrong := [
        name for name, shape in _SHAPES.get(type(record), ()) if np.shape(getattr(record, name)) != shape
    ]:
        raise BusError(
            f"A {type(record).__name__} has {wrong[0]} of shape {np.shape(getattr(record, wrong[0]))}."
        )
    if isinstance(record, m.JointState):
        if (shape := np.shape(record.position_rad)) and len(shape) != 1:
            raise BusError(f"A joint state has positions of shape {shape}; expected one per joint.")
        _per_joint("joint state", record.position_rad, record.names)
        _per_joint("joint velocity", record.velocity_rad_s, record.names, optional=True)
        _per_joint("joint effort", record.effort_nm, record.names, optional=True)
    elif isinstance(record, m.JointTrajectory):
        rows, times = _per_joint("waypoint", record.position_rad, record.names), np.shape(record.times_s)
        if rows.ndim != 2 or times != (len(rows),):
            count = times[0] if len(times) == 1 else times
            raise BusError(f"A trajectory has positions of shape {rows.shape} and {count} times.")
        if np.shape(record.velocity_rad_s) not in ((0,), rows.shape):
            raise BusError(
                f"A trajectory has velocities of shape {np.shape(record.velocity_rad_s)} for positions of "
                f"shape {rows.shape}."
            )


def _pack_joints(r: m.JointState, new: New) -> Any:
    check_shapes(r)
    return new(
        "sensor_msgs/msg/JointState",
        header=header(new, r.stamp_s, r.frame),
        name=list(r.names),
        position=floats(r.position_rad),
        velocity=floats(r.velocity_rad_s),
        effort=floats(r.effort_nm),
    )


def _unpack_joints(msg: Any) -> m.JointState:
    record = m.JointState(
        join_time(msg.header.stamp),
        tuple(msg.name),
        floats(msg.position),
        floats(msg.velocity),
        floats(msg.effort),
        msg.header.frame_id,
    )
    check_shapes(record)
    return record


def _pack_trajectory(r: m.JointTrajectory, new: New) -> Any:
    check_shapes(r)
    rows, times_s = floats(r.position_rad), floats(r.times_s)
    speeds = floats(r.velocity_rad_s) if np.size(r.velocity_rad_s) else [np.zeros(0)] * len(rows)
    points = [
        new(
            "trajectory_msgs/msg/JointTrajectoryPoint",
            positions=row,
            velocities=speed,
            time_from_start=new("builtin_interfaces/msg/Duration", **split_time(time_s)),
        )
        for row, speed, time_s in zip(rows, speeds, times_s.tolist(), strict=True)
    ]
    stamped = header(new, r.stamp_s, r.frame)
    return new(
        "trajectory_msgs/msg/JointTrajectory", header=stamped, joint_names=list(r.names), points=points
    )


def _unpack_trajectory(msg: Any) -> m.JointTrajectory:
    names = tuple(msg.joint_names)
    rows = [_per_joint("waypoint", floats(point.positions), names) for point in msg.points]
    speeds = [floats(point.velocities) for point in msg.points]
    given = len(names) > 0 and len(speeds) > 0 and all(speed.shape == (len(names),) for speed in speeds)
    return m.JointTrajectory(
        join_time(msg.header.stamp),
        names,
        np.stack(rows) if rows else np.zeros((0, len(names))),
        np.array([join_time(point.time_from_start) for point in msg.points]),
        msg.header.frame_id,
        np.stack(speeds) if given else np.zeros(0),
    )


def _pack_flight(r: m.FlightCommand, new: New) -> Any:
    values, stamped = floats(r.values).reshape(-1), header(new, r.stamp_s)
    return new("sensor_msgs/msg/JointState", header=stamped, name=list(r.names), effort=values)


def _unpack_flight(msg: Any) -> m.FlightCommand:
    return m.FlightCommand(join_time(msg.header.stamp), floats(msg.effort), tuple(msg.name))


def _pack_jog(r: m.JointJog, new: New) -> Any:
    stamped, names = header(new, r.stamp_s, r.frame), list(r.names)
    return new(
        "control_msgs/msg/JointJog", header=stamped, joint_names=names, velocities=floats(r.velocity_rad_s)
    )


def _unpack_jog(msg: Any) -> m.JointJog:
    stamp_s = join_time(msg.header.stamp)
    return m.JointJog(stamp_s, tuple(msg.joint_names), floats(msg.velocities), msg.header.frame_id)


def _pack_twist(r: m.Twist, new: New) -> Any:
    twist = new("geometry_msgs/msg/Twist", linear=xyz(new, r.linear_m_s), angular=xyz(new, r.angular_rad_s))
    return new("geometry_msgs/msg/TwistStamped", header=header(new, r.stamp_s, r.frame), twist=twist)


def _unpack_twist(msg: Any) -> m.Twist:
    linear, angular = vector(msg.twist.linear), vector(msg.twist.angular)
    return m.Twist(join_time(msg.header.stamp), linear, angular, msg.header.frame_id)


def _pack_odometry(r: m.Odometry, new: New) -> Any:
    pose = new(
        "geometry_msgs/msg/Pose",
        position=xyz(new, r.position_m, "Point"),
        orientation=quaternion(new, r.quat_wxyz),
    )
    twist = new(
        "geometry_msgs/msg/Twist", linear=xyz(new, r.velocity_body_m_s), angular=xyz(new, r.rates_rad_s)
    )
    return new(
        "nav_msgs/msg/Odometry",
        header=header(new, r.stamp_s, r.frame),
        child_frame_id=r.child_frame,
        pose=new("geometry_msgs/msg/PoseWithCovariance", pose=pose),
        twist=new("geometry_msgs/msg/TwistWithCovariance", twist=twist),
    )


def _unpack_odometry(msg: Any) -> m.Odometry:
    pose, twist = msg.pose.pose, msg.twist.twist
    return m.Odometry(
        join_time(msg.header.stamp),
        vector(pose.position),
        quat_wxyz(pose.orientation),
        vector(twist.linear),
        vector(twist.angular),
        msg.header.frame_id,
        msg.child_frame_id,
    )


def _pack_imu(r: m.Imu, new: New) -> Any:
    return new(
        "sensor_msgs/msg/Imu",
        header=header(new, r.stamp_s, r.frame),
        orientation=quaternion(new, r.quat_wxyz),
        angular_velocity=xyz(new, r.rates_rad_s),
        linear_acceleration=xyz(new, r.acceleration_m_s2),
    )


def _unpack_imu(msg: Any) -> m.Imu:
    return m.Imu(
        join_time(msg.header.stamp),
        quat_wxyz(msg.orientation),
        vector(msg.angular_velocity),
        vector(msg.linear_acceleration),
        msg.header.frame_id,
    )


def _pack_status(r: m.Status, new: New) -> Any:
    values = [new("diagnostic_msgs/msg/KeyValue", key=key, value=value) for key, value in r.values.items()]
    return new(
        "diagnostic_msgs/msg/DiagnosticStatus",
        level=r.level,
        name=r.name,
        message=r.message,
        hardware_id=r.hardware_id,
        values=values,
    )


def _unpack_status(msg: Any) -> m.Status:
    level = msg.level[0] if isinstance(msg.level, bytes) else int(msg.level)  # rclpy uses bytes for `byte`
    values = {pair.key: pair.value for pair in msg.values}
    return m.Status(msg.name, level, msg.message, values, msg.hardware_id)


def _pack_diagnostics(r: m.Diagnostics, new: New) -> Any:
    status = [_pack_status(one, new) for one in r.status]
    return new("diagnostic_msgs/msg/DiagnosticArray", header=header(new, r.stamp_s), status=status)


def _unpack_diagnostics(msg: Any) -> m.Diagnostics:
    return m.Diagnostics(join_time(msg.header.stamp), tuple(map(_unpack_status, msg.status)))


WIRE: dict[type[Any], WireFormat] = {
    m.JointState: WireFormat("sensor_msgs/msg/JointState", _pack_joints, _unpack_joints),
    m.JointTrajectory: WireFormat(
        "trajectory_msgs/msg/JointTrajectory", _pack_trajectory, _unpack_trajectory
    ),
    m.JointJog: WireFormat("control_msgs/msg/JointJog", _pack_jog, _unpack_jog),
    m.Twist: WireFormat("geometry_msgs/msg/TwistStamped", _pack_twist, _unpack_twist),
    m.Floats: WireFormat(
        "std_msgs/msg/Float64MultiArray",
        lambda r, new: new("std_msgs/msg/Float64MultiArray", data=floats(r.values).reshape(-1)),
        lambda msg: m.Floats(floats(msg.data)),
    ),
    m.FlightCommand: WireFormat("sensor_msgs/msg/JointState", _pack_flight, _unpack_flight),
    m.Odometry: WireFormat("nav_msgs/msg/Odometry", _pack_odometry, _unpack_odometry),
    m.Imu: WireFormat("sensor_msgs/msg/Imu", _pack_imu, _unpack_imu),
    m.Image: WireFormat("sensor_msgs/msg/Image", pictures.pack_image, pictures.unpack_image),
    m.DepthImage: WireFormat("sensor_msgs/msg/Image", pictures.pack_depth, pictures.unpack_depth),
    m.CompressedImage: WireFormat(
        "sensor_msgs/msg/CompressedImage", pictures.pack_compressed, pictures.unpack_compressed
    ),
    m.CameraInfo: WireFormat("sensor_msgs/msg/CameraInfo", pictures.pack_info, pictures.unpack_info),
    m.Text: WireFormat(
        "std_msgs/msg/String",
        lambda r, new: new("std_msgs/msg/String", data=r.text),
        lambda msg: m.Text(msg.data),
    ),
    m.Flag: WireFormat(
        "std_msgs/msg/Bool",
        lambda r, new: new("std_msgs/msg/Bool", data=bool(r.on)),
        lambda msg: m.Flag(bool(msg.data)),
    ),
    m.Diagnostics: WireFormat("diagnostic_msgs/msg/DiagnosticArray", _pack_diagnostics, _unpack_diagnostics),
}
