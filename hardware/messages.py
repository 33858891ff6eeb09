"""What nodes say to each other: plain frozen records. The bus turns them into ROS messages and back.

Frames follow REP 103 and 105 (SI units, world ENU, body FLU); quaternions are wxyz, body to world, here, and
xyzw on the wire. `stamp_s` is the time of capture by the sender's clock: for alignment and logs alone. How
old a message is, is judged by the local monotonic time at which it was received, which the bus hands to the
subscriber.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray


def _none() -> Float[ndarray, " 0"]:
    return np.zeros(0)


@dataclass(frozen=True, slots=True)
class JointState:
    """sensor_msgs/JointState. Velocity and effort are empty where the robot does not tell them."""

    stamp_s: float
    names: tuple[str, ...]
    position_rad: Float[ndarray, " j"]
    velocity_rad_s: Float[ndarray, " v"] = field(default_factory=_none)  # v = j, or 0
    effort_nm: Float[ndarray, " e"] = field(default_factory=_none)  # e = j, or 0


@dataclass(frozen=True, slots=True)
class JointTrajectory:
    """trajectory_msgs/JointTrajectory: k waypoints, each `times_s` after `stamp_s`; a command is one
    waypoint.

    epoch counts resets of the sender, from the time of its start [ms], and sequence its messages since: a
    receiver refuses what is out of order. On the wire they are the header's frame_id, as
    "<epoch>/<sequence>", which trajectory controllers ignore.
    """

    stamp_s: float
    names: tuple[str, ...]
    position_rad: Float[ndarray, "k j"]
    times_s: Float[ndarray, " k"]
    epoch: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Floats:
    """std_msgs/Float64MultiArray: what forward_command_controller takes, and what a policy is shown of its
    task.
    """

    values: Float[ndarray, " v"]


@dataclass(frozen=True, slots=True)
class FlightCommand:
    """std_msgs/Float64MultiArray: four motor commands, or thrust and body rates.

    epoch and sequence as in a JointTrajectory; the message has no header, so on the wire they are the label
    of its first dimension, as "<epoch>/<sequence>".
    """

    values: Float[ndarray, " v"]
    epoch: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Odometry:
    """nav_msgs/Odometry. Position in the world frame; velocity and rates in the body frame, as the message
    has them.
    """

    stamp_s: float
    position_m: Float[ndarray, " 3"]
    quat_wxyz: Float[ndarray, " 4"]
    velocity_body_m_s: Float[ndarray, " 3"]
    rates_rad_s: Float[ndarray, " 3"]
    frame: str = "world"
    child_frame: str = "base_link"


@dataclass(frozen=True, slots=True)
class Imu:
    """sensor_msgs/Imu, in the body frame; acceleration includes gravity's reaction (+9.81 upwards at
    rest).
    """

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
    """sensor_msgs/Image, encoding 32FC1: metres along the camera's axis (REP 118); what is not known is not
    finite.

    Cameras that send 16UC1, millimetres with 0 for what is not known, are read as well.
    """

    stamp_s: float
    depth_m: Float[ndarray, "h w"]
    frame: str = "camera_optical"


@dataclass(frozen=True, slots=True)
class CompressedImage:
    """sensor_msgs/CompressedImage: a JPEG, of which `format` says what it was made of, as image_transport has
    it.
    """

    stamp_s: float
    data: UInt8[ndarray, " n"]
    format: str = "rgb8; jpeg compressed bgr8"
    frame: str = "camera_optical"


@dataclass(frozen=True, slots=True)
class CameraInfo:
    """sensor_msgs/CameraInfo: how points in the camera's optical frame become pixels of its pictures."""

    stamp_s: float  # that of the picture
    width_px: int
    height_px: int
    model: str  # of the distortion: plumb_bob, rational_polynomial or equidistant
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
    """diagnostic_msgs/DiagnosticStatus; level 0 ok, 1 warning, 2 error, 3 stale."""

    name: str
    level: int
    message: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """diagnostic_msgs/DiagnosticArray."""

    stamp_s: float
    status: tuple[Status, ...]


Message = (
    JointState
    | JointTrajectory
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
