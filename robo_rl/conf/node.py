"""Settings of nodes: `python -m robo_rl.apps.node <node> key=value ...`. One class per node."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, one_of, setting


@dataclass
class NodeConfig:
    """Settings of every node."""

    name: str | None = setting(None, "name of the node on the bus; none: its name here")
    namespace: str = setting("", "namespace of the robot, so that several can share a network")
    bus: str = one_of(
        "auto", "rclpy", "dds", "in_process", help="auto: rclpy where it can be imported, else DDS"
    )


@dataclass
class DiagnosticsNodeConfig(NodeConfig):
    """`diagnostics`: status of all nodes, in one list."""


@dataclass
class SafetyFilterNodeConfig(NodeConfig):
    """`safety_filter`: the only node that sends commands to the arm."""

    robot: str = setting(REQUIRED, "description of the robot: a name, or your own YAML file")
    arm: bool = setting(False, "arm as soon as the robot's state arrives; otherwise by the service ~/arm")


@dataclass
class FlightFilterNodeConfig(NodeConfig):
    """`flight_filter`: the only node that sends commands to the quadcopter."""

    bundle: str = setting(REQUIRED, "bundle whose flight envelope is enforced")
    command_hz: float = setting(100.0, "rate of commands [Hz]", at_least=1.0)
    state_hz: float = setting(100.0, "rate of odom [Hz]", at_least=1.0)
    level: str = one_of("motors", "rates", help="commands: four motor speeds, or thrust and body rates")
    hover: float = setting(0.5, "level=rates: hover thrust, 0 to 1", at_least=0.01, at_most=0.99)
    craft: str | None = setting(None, "level=motors: craft of the motor commands; none: the bundle's")
    ground_m: float | None = setting(
        None, "height of the ground in the task's frame; none: the floor of the fence"
    )
    max_tilt_rad: float = setting(2.1, "largest tilt that any bundle may ask for, rad", at_least=0.1)
    max_rate_rad_s: float = setting(
        40.0, "largest body rate that any bundle may ask for, rad/s", at_least=0.1
    )
    max_speed_m_s: float = setting(5.0, "largest speed that any bundle may ask for, m/s", at_least=0.1)
    fence_m: list[float] = setting(
        [10.0, 10.0, 10.0], "half sides x, y, z of the largest fence, around the origin of the task, m"
    )
    arm: bool = setting(False, "arm as soon as the craft's state arrives; otherwise by the service ~/arm")


@dataclass
class SimRobotNodeConfig(NodeConfig):
    """`sim_robot`: a simulated robot."""

    robot: str = one_of("sim_arm", "sim_quad", help="which robot is simulated")
    description: str = setting(
        "sim_arm", "robot=sim_arm: description of the robot; one with a gripper, as sim_arm_gripper, adds it"
    )
    state_hz: float | None = setting(
        None,
        "rate of joint_states or odom [Hz]; none: the description's for an arm, 100 for a quadcopter",
        at_least=1.0,
    )
    bundle: str = setting("", "robot=sim_quad: bundle that flies it; empty: not known")
    craft: str | None = setting(
        None,
        "robot=sim_quad: which quadcopter; none: the one that the bundle was trained with, else cf2x_l2f",
    )
    level: str = one_of("motors", "rates", help="robot=sim_quad: command level of flight/safe")
    hover: float = setting(
        0.5, "robot=sim_quad, level=rates: hover thrust, 0 to 1", at_least=0.01, at_most=0.99
    )
    scene: str = one_of(
        "reach",
        "peg",
        "empty",
        "seek",
        help="what is around the robot. sim_arm: reach has a ball as goal, peg a peg and a block with a "
        "hole; sim_quad: empty, or seek, the room of drone/seek with its camera front",
    )
    cameras: str = setting(
        "",
        'robot=sim_arm: cameras of its scene, joined by "+": view; scene=peg also front, wrist; empty: none',
    )
    seed: int = setting(0, "scene=peg, seek: seed of the places of block and balls", at_least=0)
    senses: str = one_of("rgb", "depth", "rgb+depth", help="what the cameras publish")
    image_size: int | None = setting(
        None,
        "width and height of their pictures; none: the description's for a camera in it, else 84; seek: the "
        "bundle's, else 64",
        at_least=8,
    )
    camera_hz: float = setting(20.0, "rate of these cameras", at_least=0.1)


@dataclass
class ArmPolicyNodeConfig(NodeConfig):
    """`arm_policy`: chunks of a bundle, inferred in a process of its own."""

    bundle: str = setting(REQUIRED, "folder of the bundle")
    robot: str = setting(REQUIRED, "description of the robot")
    start: bool = setting(False, "start inference at once; otherwise by the service ~/start")
    realtime: bool = setting(
        False, "real-time chunking: infer the next chunk while the present one runs; for flow policies"
    )
    device: str = one_of("auto", "cpu", "cuda", "tensorrt", help="device of ONNX Runtime")
    threads: int = setting(1, "threads of ONNX Runtime", at_least=1)
    seed: int = setting(0, "seed of the policy's noise", at_least=0)
    remote: str = setting(
        "",
        "address of a robo-rl serve that infers this bundle, <host>:<port>[,token=<file>]; empty: infer here",
    )
    picture_age_s: float | None = setting(
        None, "largest age of a picture [s]; none: 3 periods of its camera", at_least=0.0
    )
    transport: str = one_of("raw", "compressed", help="transport of pictures: raw, or JPEG")


@dataclass
class ActionHeadNodeConfig(NodeConfig):
    """`action_head`: plays chunks at the robot's rate, or decides each command with a single-step bundle."""

    robot: str = setting(REQUIRED, "description of the robot")
    bundle: str | None = setting(
        None, "bundle of arm_policy: single-step and residual ones run here; none: play chunks"
    )
    start: bool = setting(True, "send commands as soon as an action exists; otherwise by the service ~/start")
    heartbeat_s: float | None = setting(
        None,
        "longest time without a heartbeat of arm_policy, after which its chunk is not played on [s]; none: "
        "1.25 periods of commands, at least 0.025; more for a policy behind Wi-Fi; 0: not limited",
        at_least=0.0,
    )
    picture_age_s: float | None = setting(
        None, "largest age of a picture [s]; none: 3 periods of its camera", at_least=0.0
    )
    transport: str = one_of("raw", "compressed", help="transport of pictures: raw, or JPEG")


@dataclass
class QuadPolicyNodeConfig(NodeConfig):
    """`quad_policy`: a flight bundle that commands motors, thrust and body rates, or velocities."""

    bundle: str = setting(REQUIRED, "folder of the bundle")
    goal_m: list[float] = setting([0.0, 0.0, 0.0], "hover point [m] in the task's frame")
    start: bool = setting(True, "send commands as soon as odom arrives; otherwise by the service ~/start")
    hover: float = setting(
        0.5, "bundle of rates or velocities: hover thrust, 0 to 1", at_least=0.01, at_most=0.99
    )
    takeoff_m: float = setting(
        1.0,
        "bundle of velocities: height to which a flight from below climbs first [m]; 0: none",
        at_least=0.0,
    )
    device: str = one_of("auto", "cpu", "cuda", "tensorrt", help="bundle of velocities: device of inference")
    threads: int = setting(1, "bundle of velocities: threads of inference", at_least=1)
    seed: int = setting(0, "bundle of velocities: seed of the policy's noise", at_least=0)
    remote: str = setting(
        "",
        "bundle of velocities: address of a robo-rl serve that infers it, <host>:<port>[,token=<file>]; "
        "empty: infer here",
    )
    picture_age_s: float | None = setting(
        None, "bundle of velocities: largest age of a picture [s]; none: 3 control periods", at_least=0.0
    )
    transport: str = one_of("raw", "compressed", help="transport of pictures: raw, or JPEG")


@dataclass
class RobotDriverNodeConfig(NodeConfig):
    """`robot_driver`: a real arm or quadcopter, in a process of its own with a watchdog."""

    settings: str = setting(
        REQUIRED, 'YAML file: "driver: ur", its settings, and watchdog_s if not 0.08; see docs/drivers.md'
    )
    state_hz: float | None = setting(
        None,
        "rate of joint_states or odom [Hz]; none: the description's for an arm, 100 for a quadcopter",
        at_least=1.0,
    )
    robot: str = setting(
        "", "arm: description of the robot, a name or a YAML file; its ranges and speeds bound every command"
    )
    level: str = one_of(
        "rates", "motors", help="quadcopter: command level of flight/safe; motors are refused over a link"
    )
    ground_m: float | None = setting(
        None, "quadcopter: height of the ground in odom [m]; none: 0, as the autopilot counts"
    )


@dataclass
class ControllerDriverNodeConfig(NodeConfig):
    """`controller_driver`: an arm of ros2_control, by its controller."""

    robot: str = setting(REQUIRED, "description of the robot: a name, or a YAML file")
    controller: str = setting("joint_trajectory_controller", "name of the controller")
    output: str = one_of(
        "auto",
        "trajectory",
        "forward",
        "action",
        help="auto: what fits the controller's parameters; action: FollowJointTrajectory, with bus=rclpy",
    )


@dataclass
class TeleopNodeConfig(NodeConfig):
    """`teleop`: teleoperation of the arm by gamepad, keyboard, leader arm or another device."""

    robot: str = setting(REQUIRED, "description of the robot: a name, or a YAML file")
    device: str = setting(
        "gamepad",
        "gamepad, keyboard, spacemouse, pose_stream, leader, an installed device, or recording:<file> of "
        "record_input; see docs/teleoperation.md",
    )
    mode: str = one_of(
        "joints", "tool", help="gamepad, keyboard: what they move, each joint or the tool along x, y, z"
    )
    path: str = setting("/dev/input/js0", "device file of the gamepad")
    axes: list[int] = setting(
        [], "axis for each joint, or for the tool's six directions; -1-k: axis k, reversed; empty: the usual"
    )
    dead_man: int = setting(4, "gamepad button that must be held", at_least=0)
    recorder_buttons: list[int] = setting([0, 1, 2, 3], "buttons: record, success, failure, discard; -1 none")
    leader: str = setting("", "device=leader: YAML file of the leader arm's driver or servos")
    settings: str = setting("", "YAML file with further settings of the device")
    linear_m_s: float = setting(0.25, "largest speed of the tool, m/s", at_least=0.001)
    angular_rad_s: float = setting(1.0, "largest speed of rotation of the tool, rad/s", at_least=0.001)
    scale: float = setting(1.0, "metres of the tool per metre of the operator's hand", at_least=0.01)
    joints: str = setting(
        "", "joints that the operator drives while a policy drives the others, joined by +; empty: all"
    )
    record_input: str = setting("", "new file for the device's input, which recording:<file> replays")


@dataclass
class CameraNodeConfig(NodeConfig):
    """`camera`: pictures of one camera."""

    camera: str = setting("camera", "name of the camera: pictures go to camera/<name>/image_raw")
    source: str = setting("0", "number or path of a device, a video file, or pattern")
    width: int = setting(640, "width of pictures, requested from a device", at_least=8)
    height: int = setting(480, "height of pictures, requested from a device", at_least=8)
    fps: float = setting(30.0, "pictures per second", at_least=0.1)
    loop: bool = setting(False, "restart a video file at its end")
    transport: str = one_of("raw", "compressed", "both", help="transport of pictures: raw, JPEG, or both")
    quality: int = setting(90, "JPEG quality, up to 100", at_least=1)
    calibration: str = setting(
        "", "calibration for camera_info: YAML file of ROS' camera_calibration; empty: none"
    )


@dataclass
class RecorderNodeConfig(NodeConfig):
    """`recorder`: all topics as received, into MCAP."""

    out: str = setting("recordings", "folder of the recordings, one folder each")
    start: bool = setting(False, "record from the start; otherwise by the service ~/start")
    cameras: str = setting("camera", 'names of the cameras to record, joined by "+"; empty: none')
    depth: bool = setting(False, "record the depth of these cameras as well")
    transport: str = one_of(
        "raw",
        "compressed",
        "both",
        help="transport of these pictures; camera_info is recorded where it exists",
    )


@dataclass
class TaskNodeConfig(NodeConfig):
    """`task`: the task of the policy."""

    goal: list[float] = setting([], "goal input of the policy")
    words: str = setting("", "instruction in words, for policies with a language input")
