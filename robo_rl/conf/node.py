"""Settings of nodes: `python -m robo_rl.apps.node <node> key=value ...`. Each class is one node's."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import REQUIRED, at_least, one_of


@dataclass
class NodeConfig:
    """What every node takes."""

    name: str | None = None  # of the node on the bus; none: as it is called here
    namespace: str = ""  # of the robot: several share a network that way
    bus: str = one_of("auto", "rclpy", "dds", "in_process")  # auto: rclpy where it can be imported, else DDS


@dataclass
class DiagnosticsNodeConfig(NodeConfig):
    """`diagnostics`: what all nodes say of themselves, in one list."""


@dataclass
class SafetyFilterNodeConfig(NodeConfig):
    """`safety_filter`: the only one that sends to the arm."""

    robot: str = REQUIRED  # description of the robot: a name, or a YAML file of yours
    arm: bool = False  # arm by itself once the robot is heard; otherwise by the service ~/arm


@dataclass
class FlightFilterNodeConfig(NodeConfig):
    """`flight_filter`: the only one that sends to the quadcopter."""

    bundle: str = REQUIRED  # whose envelope is kept
    command_hz: float = at_least(1.0, 100.0)  # rate of commands
    state_hz: float = at_least(1.0, 100.0)  # rate of odom
    level: str = one_of("motors", "rates")  # four motor commands, or thrust and body rates
    hover: float = at_least(0.01, 0.5)  # level=rates: the thrust, 0 to 1, that carries the craft
    craft: str = "cf2x_l2f"  # level=motors: the craft whose rotors are commanded
    ground_m: float | None = None  # height of the ground in the task's frame; none: the floor of the fence
    arm: bool = False  # arm by itself once the craft is heard; otherwise by the service ~/arm


@dataclass
class SimRobotNodeConfig(NodeConfig):
    """`sim_robot`: a simulated robot."""

    robot: str = one_of("sim_arm", "sim_quad")
    state_hz: float = at_least(1.0, 100.0)  # rate of joint_states or odom
    craft: str = "cf2x_l2f"  # robot=sim_quad: which quadcopter
    level: str = one_of("motors", "rates")  # robot=sim_quad: what flight/safe holds
    hover: float = at_least(0.01, 0.5)  # robot=sim_quad, level=rates: the thrust, 0 to 1, that carries it
    cameras: str = ""  # robot=sim_arm: cameras of its scene, joined by "+"; empty: none. It has one, view
    senses: str = one_of("rgb", "depth", "rgb+depth")  # what the cameras tell
    image_size: int = at_least(8, 84)  # width and height of their pictures
    camera_hz: float = at_least(0.1, 20.0)  # their rate


@dataclass
class ArmPolicyNodeConfig(NodeConfig):
    """`arm_policy`: a bundle that infers chunks, in a process of its own."""

    bundle: str = REQUIRED  # folder of the bundle
    robot: str = REQUIRED  # description of the robot
    start: bool = False  # infer at once; otherwise by the service ~/start
    realtime: bool = False  # each chunk goes on where the one before still runs; for flow policies
    device: str = one_of("auto", "cpu", "cuda")  # where ONNX Runtime computes
    threads: int = at_least(1, 1)  # of ONNX Runtime
    seed: int = at_least(0, 0)  # of the policy's noise
    picture_age_s: float | None = at_least(
        0.0, None
    )  # the oldest picture to act on; none: 3 periods of its camera
    transport: str = one_of("raw", "compressed")  # pictures as they are, or as JPEG


@dataclass
class ActionHeadNodeConfig(NodeConfig):
    """`action_head`: plays chunks at the robot's rate, or decides each command by itself with a single-step
    bundle.
    """

    robot: str = REQUIRED  # description of the robot
    bundle: str | None = (
        None  # the one that arm_policy has: single-step and residual ones decide here; none: plays chunks
    )
    start: bool = True  # command as soon as there is something to command; otherwise by the service ~/start
    picture_age_s: float | None = at_least(
        0.0, None
    )  # the oldest picture to act on; none: 3 periods of its camera
    transport: str = one_of("raw", "compressed")  # pictures as they are, or as JPEG


@dataclass
class QuadPolicyNodeConfig(NodeConfig):
    """`quad_policy`: a flight bundle that commands four motors, or thrust and body rates."""

    bundle: str = REQUIRED  # folder of the bundle
    goal_m: list[float] = field(
        default_factory=lambda: [0.0, 0.0, 0.0]
    )  # where to hover, in the task's frame
    start: bool = True  # command as soon as odom comes; otherwise by the service ~/start
    hover: float = at_least(
        0.01, 0.5
    )  # of a bundle of thrust and rates: the thrust, 0 to 1, that carries the craft


@dataclass
class RobotDriverNodeConfig(NodeConfig):
    """`robot_driver`: a real arm or quadcopter, in a process of its own with a watchdog."""

    settings: str = (
        REQUIRED  # YAML file: "driver: ur", its settings, and watchdog_s if not 0.08; see docs/drivers.md
    )
    state_hz: float = at_least(1.0, 100.0)  # rate of joint_states or odom
    level: str = one_of(
        "motors", "rates"
    )  # of a quadcopter: what flight/safe holds; motors are refused over a link
    ground_m: float | None = (
        None  # of a quadcopter: height of the ground in odom; none: 0, as the autopilot counts
    )


@dataclass
class TeleopNodeConfig(NodeConfig):
    """`teleop`: a human's hand on the arm, by gamepad, keyboard or leader arm."""

    robot: str = REQUIRED  # description of the robot: a name, or a YAML file
    device: str = one_of(
        "gamepad", "keyboard", "leader"
    )  # what the human holds; a leader has the gamepad's buttons
    path: str = "/dev/input/js0"  # of the gamepad
    axes: list[int] = field(
        default_factory=lambda: [0, 1, 3, 4, 6, 7]
    )  # axis for each joint; -1-k: axis k, reversed
    dead_man: int = at_least(0, 4)  # button of the gamepad to hold
    asks: list[int] = field(
        default_factory=lambda: [0, 1, 2, 3]
    )  # buttons: record, success, failure, discard; -1 none
    leader: str = ""  # device=leader: YAML file of the leader arm's driver


@dataclass
class CameraNodeConfig(NodeConfig):
    """`camera`: pictures of one camera.

    calibration: YAML file as ROS' camera_calibration writes it, for camera_info; none if empty.
    """

    camera: str = "camera"  # its name: pictures go to camera/<name>/image_raw
    source: str = "0"  # number or path of a device, a video file, or pattern
    width: int = at_least(8, 640)  # asked of a device; of the pattern
    height: int = at_least(8, 480)  # asked of a device; of the pattern
    fps: float = at_least(0.1, 30.0)  # pictures per second
    loop: bool = False  # begin a video file anew at its end
    transport: str = one_of("raw", "compressed", "both")  # pictures as they are, as JPEG, or both
    quality: int = at_least(1, 90)  # of JPEG, up to 100
    calibration: str = ""


@dataclass
class RecorderNodeConfig(NodeConfig):
    """`recorder`: all topics as they come, into MCAP."""

    out: str = "recordings"  # folder of the recordings, one folder each
    start: bool = False  # record at once; otherwise by the service ~/start
    cameras: str = "camera"  # names of the cameras to record, joined by "+"; empty: none
    depth: bool = False  # the depths of these cameras as well
    transport: str = one_of(
        "raw", "compressed", "both"
    )  # of their pictures; camera_info is recorded where there is one


@dataclass
class TaskNodeConfig(NodeConfig):
    """`task`: what the policy is asked to do."""

    goal: list[float] = field(default_factory=list)  # what the policy is shown behind the robot's own state
    words: str = ""  # the same in words, for policies that read
