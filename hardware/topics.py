"""All topics of the nodes: names, types, quality of service and rates.

The tables in docs/topics.md are generated from this file. Names are relative, so that each robot can have its
own namespace; only /diagnostics is absolute, as ROS' tools expect it. The stamp of a message is the time of
capture, except for `command/safe`, whose stamp is 0. The age of a message is computed from the local time of
its receipt.
"""

from __future__ import annotations

from typing import Any

from hardware.bus.protocol import Profile
from hardware.messages import (
    CameraInfo,
    CompressedImage,
    DepthImage,
    Diagnostics,
    Flag,
    FlightCommand,
    Floats,
    Image,
    Imu,
    JointJog,
    JointState,
    JointTrajectory,
    Odometry,
    Text,
    Twist,
)
from hardware.topic import Topic

COMMAND, STATE, SENSOR, LATCHED = Profile.COMMAND, Profile.STATE, Profile.SENSOR, Profile.LATCHED

JOINT_STATES = Topic(
    "joint_states",
    JointState,
    STATE,
    "100-500 Hz",
    "sim_robot, robot_driver, joint_state_broadcaster",
    "arm_policy, action_head, safety_filter, teleop, recorder, record_app",
    "measured joint positions of the arm",
)
CHUNK = Topic(
    "policy/chunk",
    JointTrajectory,
    COMMAND,
    "5-30 Hz",
    "arm_policy",
    "action_head, recorder",
    "waypoints from one inference, with the stamp of the state that the policy observed",
)
HEARTBEAT = Topic(
    "policy/heartbeat",
    Flag,
    STATE,
    "100 Hz",
    "arm_policy",
    "action_head",
    "true while the policy's node runs; false when it is stopped, its inference has died or the node ends",
)
METADATA = Topic(
    "policy/metadata",
    Text,
    LATCHED,
    "once",
    "arm_policy, quad_policy",
    "recorder",
    "manifest of the bundle as JSON, for replaying an inference",
)
POLICY_STATUS = Topic(
    "policy/status",
    Diagnostics,
    STATE,
    "2 Hz",
    "arm_policy, quad_policy",
    "diagnostics",
    "inference time, age of the observation",
)
RAW = Topic(
    "command/raw",
    JointTrajectory,
    COMMAND,
    "50-100 Hz",
    "action_head",
    "safety_filter, recorder",
    "one waypoint, before the safety filter; none: hold at once",
)
LOOP_STATUS = Topic(
    "loop/status",
    Diagnostics,
    STATE,
    "2 Hz",
    "action_head, sim_robot",
    "diagnostics",
    "ticks, missed deadlines, jitter, latency, and whether the driver's watchdog has fired",
)
SAFE = Topic(
    "command/safe",
    JointTrajectory,
    COMMAND,
    "as command/raw; at the command rate while holding",
    "safety_filter",
    "sim_robot, robot_driver, controller_driver, teleop, recorder, record_app",
    "one waypoint, after the safety filter; robots follow no other commands; stamp 0 (execute at once)",
)
SAFETY_STATE = Topic(
    "safety/state",
    Diagnostics,
    STATE,
    "2 Hz, and on every change",
    "safety_filter",
    "diagnostics, recorder, record_app, arm_policy, action_head, quad_policy",
    "phase of the filter, its reason, and counts of refused commands",
)
ESTOP = Topic(
    "estop",
    Flag,
    LATCHED,
    "on change",
    "a button, record_app",
    "safety_filter, record_app",
    "emergency stop; true: pressed",
)
TELEOP = Topic(
    "teleop/command",
    JointTrajectory,
    COMMAND,
    "50 Hz",
    "teleop",
    "safety_filter, recorder",
    "one waypoint, commanded by a human",
)
JOINT_JOG = Topic(
    "teleop/joint_jog",
    JointJog,
    STATE,
    "10-100 Hz",
    "record_app, a human's program",
    "safety_filter",
    "velocities of some joints, commanded by a human; followed for 0.1 s",
)
TWIST = Topic(
    "teleop/twist",
    Twist,
    STATE,
    "10-100 Hz",
    "record_app, a human's program",
    "safety_filter",
    "velocity of the tool in the base frame, commanded by a human; followed for 0.1 s",
)
TELEOP_JOINTS = Topic(
    "teleop/joints",
    Text,
    LATCHED,
    "on change",
    "teleop, a human's program",
    "safety_filter, recorder",
    "joints that only a human drives, while the policy drives the others, joined by +; empty: none",
)
TELEOP_FAULT = Topic(
    "teleop/fault",
    Text,
    LATCHED,
    "on change",
    "teleop",
    "record_app",
    "why the device is not followed, or empty",
)
INTERVENTION = Topic(
    "teleop/intervention",
    Flag,
    LATCHED,
    "on change",
    "teleop, record_app, a human's program",
    "safety_filter, action_head, recorder, teleop, record_app",
    "true while a human controls the robot",
)
GOAL = Topic(
    "goal",
    Floats,
    LATCHED,
    "on change",
    "a task",
    "arm_policy, action_head, quad_policy",
    "part of the policy's observation after the robot's own state, such as a target position",
)
SCENE = Topic(
    "scene/shapes",
    Text,
    LATCHED,
    "on change",
    "sim_robot",
    "record_app",
    "shapes of a simulated arm and its scene as JSON, for drawing them (`robo_rl/apps/recording/scene.py`)",
)
TASK = Topic(
    "task", Text, LATCHED, "on change", "a task, record_app", "arm_policy, quad_policy", "instruction"
)
ODOM = Topic(
    "odom",
    Odometry,
    STATE,
    "100-200 Hz",
    "sim_robot, robot_driver, an estimator",
    "quad_policy, safety_filter, recorder",
    "pose and velocity of the craft",
)
IMU = Topic(
    "imu", Imu, STATE, "100-200 Hz", "an autopilot", "recorder", "body rates and acceleration of the craft"
)
FLIGHT_RAW = Topic(
    "flight/raw",
    FlightCommand,
    COMMAND,
    "50-100 Hz",
    "quad_policy",
    "safety_filter",
    "four motor commands, or thrust and body rates, before the flight filter",
)
FLIGHT_SAFE = Topic(
    "flight/safe",
    FlightCommand,
    COMMAND,
    "as flight/raw",
    "safety_filter",
    "sim_robot, robot_driver",
    "the same after the flight filter; the craft follows no other commands",
)
CAMERA_STATUS = Topic(
    "camera/status",
    Diagnostics,
    STATE,
    "1 Hz",
    "camera",
    "diagnostics",
    "number of pictures, and whether they have stopped",
)
DRIVER_STATUS = Topic(
    "driver/status",
    Diagnostics,
    STATE,
    "2 Hz, and on every change",
    "robot_driver, controller_driver",
    "diagnostics",
    "whether the robot follows commands, and the reason if not",
)
DIAGNOSTICS = Topic(
    "/diagnostics",
    Diagnostics,
    STATE,
    "1 Hz",
    "diagnostics",
    "recorder, a human",
    "all status messages above in one list",
)
SUCCESS = Topic(
    "episode/success",
    Flag,
    COMMAND,
    "once per episode",
    "a human, a detector",
    "recorder",
    "outcome of the episode that is being recorded; the last message counts",
)
RECORDER_REQUEST = Topic(
    "episode/ask",
    Text,
    COMMAND,
    "on a button press",
    "teleop, a human",
    "recorder, record_app",
    "start, stop, success, failure or discard, as the services of the recorder",
)
EPISODE = Topic(
    "episode/status",
    Text,
    LATCHED,
    "on change",
    "recorder, record_app",
    "a human",
    "the episode that is being recorded",
)


def image_topic(camera: str) -> Topic[Image]:
    """Topic of the RGB pictures of one camera."""
    return Topic(
        f"camera/{camera}/image_raw",
        Image,
        SENSOR,
        "30 Hz",
        "camera, sim_robot",
        "arm_policy, action_head, quad_policy, recorder, record_app",
        "RGB pictures",
    )


def depth_topic(camera: str) -> Topic[DepthImage]:
    """Topic of the depth pictures of one camera."""
    return Topic(
        f"camera/{camera}/depth/image_raw",
        DepthImage,
        SENSOR,
        "30 Hz",
        "sim_robot, a camera's driver",
        "arm_policy, action_head, quad_policy, recorder",
        "depth pictures: 32FC1 in metres, or 16UC1 in millimetres",
    )


def compressed_topic(camera: str) -> Topic[CompressedImage]:
    """Topic of the JPEG pictures of one camera, named as in image_transport."""
    return Topic(
        f"camera/{camera}/image_raw/compressed",
        CompressedImage,
        SENSOR,
        "30 Hz",
        "camera",
        "arm_policy, action_head, quad_policy, recorder, record_app",
        "JPEG pictures, with `transport=compressed` or `both`",
    )


def camera_info_topic(camera: str) -> Topic[CameraInfo]:
    """Topic of the intrinsics of one camera."""
    return Topic(
        f"camera/{camera}/camera_info",
        CameraInfo,
        SENSOR,
        "30 Hz",
        "camera",
        "recorder",
        "intrinsics, with the stamp of each picture, with `calibration=`",
    )


TOPICS: tuple[Topic[Any], ...] = (
    JOINT_STATES,
    image_topic("<name>"),
    compressed_topic("<name>"),
    depth_topic("<name>"),
    camera_info_topic("<name>"),
    CHUNK,
    HEARTBEAT,
    METADATA,
    POLICY_STATUS,
    RAW,
    LOOP_STATUS,
    SAFE,
    SAFETY_STATE,
    ESTOP,
    TELEOP,
    JOINT_JOG,
    TWIST,
    TELEOP_JOINTS,
    TELEOP_FAULT,
    INTERVENTION,
    GOAL,
    SCENE,
    TASK,
    ODOM,
    IMU,
    FLIGHT_RAW,
    FLIGHT_SAFE,
    CAMERA_STATUS,
    DRIVER_STATUS,
    DIAGNOSTICS,
    SUCCESS,
    RECORDER_REQUEST,
    EPISODE,
)
