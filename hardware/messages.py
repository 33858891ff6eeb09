"""Messages between nodes: frozen records, which the bus converts to ROS messages and back.

Frames follow REP 103 and 105 (SI units, world ENU, body FLU). Quaternions are [w, x, y, z], body to world, in
these records, and [x, y, z, w] in ROS messages. `stamp_s` is the time of capture by the sender's clock; it is
used for alignment and logs only. The age of a message is computed from the local monotonic time of its
receipt, which the bus passes to the subscriber.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float, UInt8


def _none() -> Float[ndarray, " 0"]:
    return np.zeros(0)


# Names of the four values of a flight command, by its level.
MOTORS = ("motor_1", "motor_2", "motor_3", "motor_4")
RATES = ("thrust", "rate_x", "rate_y", "rate_z")


@dataclass(frozen=True, slots=True)
class JointState:
    """sensor_msgs/JointState. Velocity and effort are empty where the robot does not report them."""

    stamp_s: float
    names: tuple[str, ...]
    position_rad: Float[ndarray, " j"]
    velocity_rad_s: Float[ndarray, " v"] = field(default_factory=_none)  # v = j, or 0
    effort_nm: Float[ndarray, " e"] = field(default_factory=_none)  # e = j, or 0
    frame: str = ""  # base frame of the robot


@dataclass(frozen=True, slots=True)
class JointTrajectory:
    """trajectory_msgs/JointTrajectory: k waypoints, each `times_s` after `stamp_s`; a command has one.

    Commands are ordered by stamp: each one of a sender is later than the one before, or all are 0 ("now").
    Receivers refuse those that are not; see `hardware.safety.message_parsing.StampOrder`. A chunk has the
    stamp of the state that the policy observed. velocity_rad_s: of each waypoint; empty where the receiver
    finds its own.
    """

    stamp_s: float
    names: tuple[str, ...]
    position_rad: Float[ndarray, "k j"]
    times_s: Float[ndarray, " k"]
    frame: str = ""  # base frame of the robot
    velocity_rad_s: Float[ndarray, "..."] = field(default_factory=_none)  # (k, j), or (0,)


@dataclass(frozen=True, slots=True)
class JointJog:
    """control_msgs/JointJog: wanted velocities of some joints, streamed by a program for teleoperation."""

    stamp_s: float
    names: tuple[str, ...]
    velocity_rad_s: Float[ndarray, " j"]
    frame: str = ""


@dataclass(frozen=True, slots=True)
class Twist:
    """geometry_msgs/TwistStamped: wanted velocity of the tool, in the frame of the arm's base."""

    stamp_s: float
    linear_m_s: Float[ndarray, " 3"]
    angular_rad_s: Float[ndarray, " 3"]
    frame: str = ""


@dataclass(frozen=True, slots=True)
class Floats:
    """std_msgs/Float64MultiArray: commands for a forward_command_controller, and the goal of a policy."""

    values: Float[ndarray, " v"]


@dataclass(frozen=True, slots=True)
class FlightCommand:
    """sensor_msgs/JointState, whose efforts are four motor commands, or thrust and body rates.

    Standard messages have no other type with a header and named numbers. Ordered by stamp, as
    JointTrajectory. names: `MOTORS` or `RATES`; empty: not said.
    """

    stamp_s: float
    values: Float[ndarray, " v"]  # v = 4: motors in [-1, 1], or thrust in [0, 1] and body rates [rad/s]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Odometry:
    """nav_msgs/Odometry: position in the world frame, velocity and rates in the body frame."""

    stamp_s: float
    position_m: Float[ndarray, " 3"]
    quat_wxyz: Float[ndarray, " 4"]  # body to world
    velocity_body_m_s: Float[ndarray, " 3"]
    rates_rad_s: Float[ndarray, " 3"]
    frame: str = "world"
    child_frame: str = "base_link"


@dataclass(frozen=True, slots=True)
class Imu:
    """sensor_msgs/Imu, in the body frame. The acceleration is specific force: +9.81 upwards at rest."""

    stamp_s: float
    quat_wxyz: Float[ndarray, " 4"]
    rates_rad_s: Float[ndarray, " 3"]
    acceleration_m_s2: Float[ndarray, " 3"]
    frame: str = "base_link"


@dataclass(frozen=True, slots=True)
class Image:
    """sensor_msgs/Image, encoding rgb8."""

    stamp_s: float
    pixels: UInt8[ndarray, "h w 3"]
    frame: str = "camera_optical"


@dataclass(frozen=True, slots=True)
class DepthImage:
    """sensor_msgs/Image, encoding 32FC1: depth along the camera's axis (REP 118) [m]; not finite if unknown.

    Messages with the encoding 16UC1 (millimetres, 0 if unknown) are converted when they are received.
    """

    stamp_s: float
    depth_m: Float[ndarray, "h w"]
    frame: str = "camera_optical"


@dataclass(frozen=True, slots=True)
class CompressedImage:
    """sensor_msgs/CompressedImage: the bytes of a JPEG file."""

    stamp_s: float
    data: UInt8[ndarray, " n"]
    format: str = "rgb8; jpeg compressed bgr8"  # as image_transport writes it
    frame: str = "camera_optical"


@dataclass(frozen=True, slots=True)
class CameraInfo:
    """sensor_msgs/CameraInfo: intrinsics of a camera, for points in its optical frame."""

    stamp_s: float  # equal to that of the picture
    width_px: int
    height_px: int
    model: str  # distortion model: plumb_bob, rational_polynomial or equidistant
    distortion: Float[ndarray, " d"]
    matrix: Float[ndarray, "3 3"]  # K: focal lengths and principal point [pixels]
    rectification: Float[ndarray, "3 3"]  # R
    projection: Float[ndarray, "3 4"]  # P
    frame: str = "camera_optical"


@dataclass(frozen=True, slots=True)
class Text:
    """std_msgs/String."""

    text: str


@dataclass(frozen=True, slots=True)
class Flag:
    """std_msgs/Bool."""

    on: bool


@dataclass(frozen=True, slots=True)
class Status:
    """diagnostic_msgs/DiagnosticStatus. Levels: 0 ok, 1 warning, 2 error, 3 stale.

    hardware_id: the robot or device that the status is about.
    """

    name: str
    level: int
    message: str
    values: Mapping[str, str] = field(default_factory=dict)
    hardware_id: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """diagnostic_msgs/DiagnosticArray."""

    stamp_s: float
    status: tuple[Status, ...]


Message = (
    JointState
    | JointTrajectory
    | JointJog
    | Twist
    | Floats
    | FlightCommand
    | Odometry
    | Imu
    | Image
    | DepthImage
    | CompressedImage
    | CameraInfo
    | Text
    | Flag
    | Diagnostics
)
