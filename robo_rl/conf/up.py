"""Settings of the verbs that start nodes or talk to running ones: `up`, `call` and `topic`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, one_of, setting


@dataclass
class UpConfig:
    """`robo-rl up`. A setting that the node set lacks is refused; None takes the set's default."""

    set: str = setting(REQUIRED, "node set: arm_sim, quad_sim, arm, quad or teleop")
    bundle: str | None = setting(None, "folder of the bundle that controls the robot; empty: none")
    robot: str | None = setting(None, "description of the robot: a name, or your own YAML file")
    driver: str | None = setting(None, "YAML file of a real robot's driver; empty: none")
    controller: str | None = setting(
        None,
        "controller of ros2_control that moves the arm, such as joint_trajectory_controller; empty: none",
    )
    output: str | None = setting(
        None, "how the controller is commanded: trajectory, forward, action (rclpy) or auto"
    )
    device: str | None = setting(
        None, "teleoperation device: gamepad, keyboard, spacemouse, pose_stream, leader, ...; empty: none"
    )
    device_settings: str | None = setting(None, "YAML file with further settings of the device; empty: none")
    leader: str | None = setting(None, "device=leader: YAML file of the leader arm's driver or servos")
    level: str | None = setting(None, "command level of a quadcopter's bundle: motors or rates")
    hover: float | None = setting(None, "level=rates: hover thrust, 0 to 1", at_least=0.01, at_most=0.99)
    ground: float | None = setting(
        None, "height of the ground in a quadcopter's task frame [m]: -0.6 hovers 0.6 m above it"
    )
    takeoff: float | None = setting(
        None, "quadcopter, bundle of velocities: height to which a flight climbs first [m]", at_least=0.0
    )
    max_tilt_rad: float | None = setting(
        None, "largest tilt that the flight filter allows, whatever the bundle says, rad", at_least=0.1
    )
    max_speed_m_s: float | None = setting(
        None, "largest speed that the flight filter allows, m/s", at_least=0.1
    )
    fence_m: str | None = setting(
        None, "half sides x, y, z of the flight filter's largest fence, m, e.g. [1,1,0.8]"
    )
    arm: bool | None = setting(None, "arm the filter as soon as the robot's state arrives")
    goal: str | None = setting(None, "goal input of the policy, e.g. [0.4,0,0.4]; empty: none is published")
    camera: str | None = setting(
        None, "0, /dev/video0, a video file or pattern; several: 0+2; empty: those of robot="
    )
    camera_name: str | None = setting(
        None,
        "names of these cameras in the bundle and robot, in the same order: wrist+front; empty: robot='s",
    )
    cameras: str | None = setting(None, "cameras of the simulated arm, joined by +, e.g. view; empty: none")
    scene: str | None = setting(
        None,
        "what is around the simulated robot: reach, or peg, the scene of robo-rl record robot=sim_arm; "
        "quadcopter: empty, or seek, the room of drone/seek",
    )
    instruction: str | None = setting(
        None, "instruction to a policy that reads one; empty: its bundle's, or another node publishes it"
    )
    senses: str | None = setting(None, "what these cameras publish: rgb, depth or rgb+depth")
    transport: str | None = setting(None, "transport of pictures: raw, or compressed to JPEG")
    calibration: str | None = setting(
        None, "YAML files of the cameras' calibrations, for camera_info (teleop); empty: none"
    )
    realtime: bool | None = setting(
        None, "real-time chunking: infer the next chunk while the present one runs; for flow policies"
    )
    remote: str | None = setting(
        None, "a robo-rl serve that infers the bundle, <host>:<port>[,token=<file>]; empty: infer here"
    )
    heartbeat_s: str | None = setting(
        None,
        "longest time without a heartbeat of the policy [s]; 0: not limited; none: set by the command rate",
    )
    record: str | None = setting(None, "folder of recordings; empty: nothing is recorded")
    namespace: str = setting("", "namespace of the robot, so that several can share a network")
    bus: str = one_of("dds", "auto", "rclpy", help="transport of messages; dds needs no ROS")
    network: str = one_of(
        "loopback", "lan", help="bus=rclpy: discover nodes of this machine alone, or of the network too"
    )
    seconds: float | None = setting(None, "stop after this time [s]", at_least=0.0)


@dataclass
class CallConfig:
    """`robo-rl call`."""

    service: str = setting(REQUIRED, "e.g. safety_filter/arm; docs/topics.md has the table")
    namespace: str = setting("", "namespace of the robot")
    bus: str = one_of("auto", "rclpy", "dds", help="auto: rclpy where it can be imported, else DDS")
    timeout_s: float = setting(5.0, "longest wait for the server and its answer [s]", at_least=0.0)


@dataclass
class TopicListConfig:
    """`robo-rl topic list`."""

    namespace: str = setting("", "namespace of a robot, to list its topics only")
    wait_s: float = setting(1.0, "time of the search [s]", at_least=0.0)


@dataclass
class TopicInfoConfig:
    """`robo-rl topic info`."""

    topic: str = setting(REQUIRED, "name of the topic, e.g. joint_states; robo-rl topic list shows all")
    namespace: str = setting("", "namespace of the robot")
    wait_s: float = setting(3.0, "longest search for the topic [s]", at_least=0.0)


@dataclass
class TopicEchoConfig:
    """`robo-rl topic echo`."""

    topic: str = setting(REQUIRED, "name of the topic, e.g. joint_states; robo-rl topic list shows all")
    count: int | None = setting(None, "stop after this many messages; none: at Ctrl-C", at_least=1)
    seconds: float | None = setting(None, "stop after this time [s]; none: no limit", at_least=0.0)
    cut: int | None = setting(
        16, "number of elements shown of arrays and texts; none: all, also pixels", at_least=1
    )
    namespace: str = setting("", "namespace of the robot")
    wait_s: float = setting(3.0, "longest search for the topic [s]", at_least=0.0)


@dataclass
class TopicHzConfig:
    """`robo-rl topic hz`."""

    topic: str = setting(REQUIRED, "name of the topic, e.g. joint_states; robo-rl topic list shows all")
    window: int = setting(1000, "number of newest messages that each line is computed from", at_least=2)
    seconds: float | None = setting(None, "stop after this time [s]; none: at Ctrl-C", at_least=0.0)
    namespace: str = setting("", "namespace of the robot")
    wait_s: float = setting(3.0, "longest search for the topic [s]", at_least=0.0)
