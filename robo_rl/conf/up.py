"""Settings of `robo-rl up`. What a set does not take is refused; what is not given is as the set has it."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, one_of, setting


@dataclass
class UpConfig:
    """`robo-rl up`."""

    set: str = setting(REQUIRED, "which nodes: arm_sim, quad_sim, arm, quad or teleop")
    bundle: str | None = setting(None, "folder of the bundle that drives")
    robot: str | None = setting(None, "description of the robot: a name, or a YAML file of yours")
    driver: str | None = setting(None, "YAML file of a real robot's driver")
    device: str | None = setting(None, "what a human drives or takes over with: gamepad, keyboard or leader")
    leader: str | None = setting(None, "device=leader: YAML file of the leader arm's driver")
    level: str | None = setting(None, "what a quadcopter's bundle commands: motors or rates")
    hover: float | None = setting(
        None, "level=rates: the thrust, 0 to 1, that carries the craft", at_least=0.01
    )
    ground: float | None = setting(
        None, "height of the ground in a quadcopter's task: -0.6 hovers 0.6 m above it"
    )
    arm: bool | None = setting(None, "arm the filter as soon as the robot is heard")
    goal: str | None = setting(
        None, "what the policy is shown behind the robot's own state, e.g. [0.4,0,0.4]"
    )
    camera: str | None = setting(
        None, "0, /dev/video0, a video file or pattern; several: 0+2. None: as robot= has them"
    )
    camera_name: str | None = setting(
        None, "how bundle and robot call these cameras, in this order: wrist+front"
    )
    cameras: str | None = setting(None, "of the simulated arm, joined by +, e.g. view")
    senses: str | None = setting(None, "what they tell: rgb, depth or rgb+depth")
    transport: str | None = setting(None, "of pictures: raw, or compressed to JPEG")
    calibration: str | None = setting(
        None, "YAML files of the cameras' calibrations, for camera_info (teleop)"
    )
    realtime: bool | None = setting(
        None, "each chunk goes on where the one before still runs; for flow policies"
    )
    record: str | None = setting(None, "folder of recordings")
    namespace: str = setting("", "of the robot: several share a network that way")
    bus: str = one_of("dds", "auto", "rclpy", help="dds needs no ROS")
    seconds: float | None = setting(None, "stop by itself after this time", at_least=0.0)


@dataclass
class CallConfig:
    """`robo-rl call`."""

    service: str = setting(REQUIRED, "e.g. safety_filter/arm; docs/ros2.md has the table")
    namespace: str = setting("", "of the robot")
    bus: str = one_of("auto", "rclpy", "dds", help="auto: rclpy where it can be imported, else DDS")
    timeout_s: float = setting(5.0, "how long to wait for the server and its answer", at_least=0.0)
