"""Names, types, quality of service and rates of all topics and services: one table, which nodes and docs are
held to.

Names are relative, so that a namespace gives each robot its own. Every stamped message carries the time of
capture, but for `command/safe`; how old it is, is judged by the local time of its receipt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hardware.bus.protocol import Bus, Profile
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
    JointState,
    JointTrajectory,
    Message,
    Odometry,
    Text,
)

K = TypeVar("K", bound=Message)


@dataclass(frozen=True, slots=True)
class Topic(Generic[K]):
    """One topic. `rate`: in words. `by`, `to`: the nodes that publish and subscribe, in words."""

    name: str
    kind: type[K]
    profile: Profile
    rate: str
    by: str
    to: str
    meaning: str

    def publisher(self, bus: Bus) -> Callable[[K], None]:
        """A function that publishes on it."""
        return bus.publisher(self.name, self.kind, self.profile)

    def subscribe(self, bus: Bus, callback: Callable[[K, float], None]) -> None:
        """callback(message, received_s)."""
        bus.subscribe(self.name, self.kind, self.profile, callback)


COMMAND, STATE, SENSOR, LATCHED = Profile.COMMAND, Profile.STATE, Profile.SENSOR, Profile.LATCHED

JOINT_STATES = Topic(
    "joint_states",
    JointState,
    STATE,
    "100-500 Hz",
    "sim_robot, robot_driver, joint_state_broadcaster",
    "arm_policy, action_head, safety_filter, recorder",
    "where the arm is",
)
CHUNK = Topic(
    "policy/chunk",
    JointTrajectory,
    COMMAND,
    "5-30 Hz",
    "arm_policy",
    "action_head, recorder",
    "waypoints from one inference; stamped with the state that they were inferred from",
)
METADATA = Topic(
    "policy/metadata",
    Text,
    LATCHED,
    "once",
    "arm_policy, quad_policy",
    "recorder",
    "the bundle's manifest as JSON, so that each inference can be replayed",
)
POLICY_STATUS = Topic(
    "policy/status",
    Diagnostics,
    STATE,
    "2 Hz",
    "arm_policy, quad_policy",
    "diagnostics",
    "inference time, age of its input",
)
RAW = Topic(
    "command/raw",
    JointTrajectory,
    COMMAND,
    "50-100 Hz",
    "action_head",
    "safety_filter, recorder",
    "one waypoint, as the policy wants it",
)
LOOP_STATUS = Topic(
    "loop/status",
    Diagnostics,
    STATE,
    "2 Hz",
    "action_head, sim_robot",
    "diagnostics",
    "ticks, missed deadlines, jitter, latency; has the driver's watchdog fired",
)
SAFE = Topic(
    "command/safe",
    JointTrajectory,
    COMMAND,
    "as command/raw; holds at the command rate",
    "safety_filter",
    "sim_robot, robot_driver, joint_trajectory_controller, recorder",
    "the only commands that a robot obeys; stamped 0: at once",
)
SAFETY_STATE = Topic(
    "safety/state",
    Diagnostics,
    STATE,
    "2 Hz, and at every change",
    "safety_filter",
    "diagnostics, recorder, arm_policy, action_head, quad_policy",
    "phase, reason, counts",
)
ESTOP = Topic(
    "estop", Flag, LATCHED, "at changes", "a button", "safety_filter", "the emergency stop; true is pressed"
)
TELEOP = Topic(
    "teleop/command",
    JointTrajectory,
    COMMAND,
    "50 Hz",
    "teleop",
    "safety_filter, recorder",
    "what a human commands",
)
INTERVENTION = Topic(
    "teleop/intervention",
    Flag,
    LATCHED,
    "at changes",
    "teleop",
    "safety_filter, recorder",
    "a human has taken over",
)
GOAL = Topic(
    "goal",
    Floats,
    LATCHED,
    "at changes",
    "a task",
    "arm_policy, action_head, quad_policy",
    "what the policy is shown behind the robot's own state",
)
TASK = Topic("task", Text, LATCHED, "at changes", "a task", "arm_policy", "what to do, in words")
ODOM = Topic(
    "odom",
    Odometry,
    STATE,
    "100-200 Hz",
    "sim_robot, robot_driver, an estimator",
    "quad_policy, safety_filter, recorder",
    "where the craft is",
)
IMU = Topic(
    "imu", Imu, STATE, "100-200 Hz", "an autopilot", "recorder", "rates and acceleration of the craft"
)
FLIGHT_RAW = Topic(
    "flight/raw",
    FlightCommand,
    COMMAND,
    "50-100 Hz",
    "quad_policy",
    "safety_filter",
    "four motor commands, or thrust and body rates",
)
FLIGHT_SAFE = Topic(
    "flight/safe",
    FlightCommand,
    COMMAND,
    "as flight/raw",
    "safety_filter",
    "sim_robot, robot_driver",
    "the only commands that a craft obeys",
)
CAMERA_STATUS = Topic(
    "camera/status",
    Diagnostics,
    STATE,
    "1 Hz",
    "camera",
    "diagnostics",
    "pictures so far, and whether they stopped",
)
DRIVER_STATUS = Topic(
    "driver/status",
    Diagnostics,
    STATE,
    "2 Hz, and at every change",
    "robot_driver",
    "diagnostics",
    "does the robot obey, and why not",
)
DIAGNOSTICS = Topic(
    "diagnostics",
    Diagnostics,
    STATE,
    "1 Hz",
    "diagnostics",
    "recorder, a human",
    "all of the above in one list",
)
SUCCESS = Topic(
    "episode/success",
    Flag,
    COMMAND,
    "once an episode",
    "a human, a detector",
    "recorder",
    "did what is being recorded reach its goal? What is said last counts",
)
ASK = Topic(
    "episode/ask",
    Text,
    COMMAND,
    "at a button",
    "teleop, a human",
    "recorder",
    "start, stop, success, failure or discard: as the recorder's services",
)
EPISODE = Topic(
    "episode/status", Text, LATCHED, "at changes", "recorder", "a human", "which episode is being recorded"
)


def image_topic(camera: str) -> Topic[Image]:
    """The pictures of one camera, rgb8."""
    return Topic(
        f"camera/{camera}/image_raw",
        Image,
        SENSOR,
        "30 Hz",
        "camera, sim_robot",
        "arm_policy, action_head, recorder",
        "pictures of one camera",
    )


def depth_topic(camera: str) -> Topic[DepthImage]:
    """How far away what each pixel shows is."""
    return Topic(
        f"camera/{camera}/depth/image_raw",
        DepthImage,
        SENSOR,
        "30 Hz",
        "sim_robot, a camera's driver",
        "arm_policy, action_head, recorder",
        "32FC1 in metres, or 16UC1 in millimetres",
    )


def compressed_topic(camera: str) -> Topic[CompressedImage]:
    """The same as JPEG, named as image_transport names it."""
    return Topic(
        f"camera/{camera}/image_raw/compressed",
        CompressedImage,
        SENSOR,
        "30 Hz",
        "camera",
        "arm_policy, action_head, recorder",
        "the same as JPEG; by `transport=compressed` or `both`",
    )


def camera_info_topic(camera: str) -> Topic[CameraInfo]:
    """How the camera maps points to pixels, beside each picture."""
    return Topic(
        f"camera/{camera}/camera_info",
        CameraInfo,
        SENSOR,
        "30 Hz",
        "camera",
        "recorder",
        "beside each picture, with its stamp: how points become pixels; by `calibration=`",
    )


TOPICS: tuple[Topic[Any], ...] = (
    JOINT_STATES,
    image_topic("<name>"),
    compressed_topic("<name>"),
    depth_topic("<name>"),
    camera_info_topic("<name>"),
    CHUNK,
    METADATA,
    POLICY_STATUS,
    RAW,
    LOOP_STATUS,
    SAFE,
    SAFETY_STATE,
    ESTOP,
    TELEOP,
    INTERVENTION,
    GOAL,
    TASK,
    ODOM,
    IMU,
    FLIGHT_RAW,
    FLIGHT_SAFE,
    CAMERA_STATUS,
    DRIVER_STATUS,
    DIAGNOSTICS,
    SUCCESS,
    ASK,
    EPISODE,
)

# Trigger services: node -> (name below the node's own, what it does).
SERVICES: dict[str, tuple[tuple[str, str], ...]] = {
    "safety_filter": (
        ("~/arm", "from silence to holding, then following"),
        ("~/stop", "brake, send the stop, fall silent"),
    ),
    "arm_policy": (
        ("~/start", "infer"),
        ("~/stop", "infer no more"),
        ("~/reset", "a new episode: forget what was seen"),
    ),
    "action_head": (
        ("~/start", "command"),
        ("~/stop", "command no more"),
        ("~/reset", "a new episode, a new epoch"),
    ),
    "quad_policy": (
        ("~/start", "command"),
        ("~/stop", "command no more"),
        ("~/reset", "forget what was seen"),
    ),
    "recorder": (
        ("~/start", "record"),
        ("~/stop", "save the recording"),
        ("~/success", "save it, noted as one that reached its goal"),
        ("~/failure", "save it, noted as one that did not"),
        ("~/discard", "throw the recording away"),
    ),
    "robot_driver": (("~/connect", "after a stop or a lost connection: connect again, and obey"),),
    "flight_filter": (("~/arm", "let the policy fly"), ("~/stop", "land, then motors off")),
    "sim_robot": (("~/reset", "put the simulated robot back to its start"),),
}
