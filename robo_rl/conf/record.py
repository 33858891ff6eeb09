"""Settings of `robo-rl record`, and of its node."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import one_of, setting
from robo_rl.conf.node import NodeConfig

LOOPBACK = "127.0.0.1"


@dataclass
class RecordingSettings:
    """Settings that the verb passes to its node."""

    robot: str = setting(
        "sim_arm", "description: a name or your own YAML file; ros2: that of nodes that run already"
    )
    task: str = setting("", "instruction in words, which each episode keeps; the page can change it")
    out: str = setting("data/recorded", "dataset; an existing one gets more episodes")
    cameras: str = setting(
        "auto", 'cameras to record, joined by "+"; auto: those of the robot\'s description; empty: none'
    )
    transport: str = one_of("raw", "compressed", help="transport of pictures from the cameras: raw, or JPEG")
    rate_hz: float | None = setting(
        None, "frames per second [Hz]; none: the slowest of commands, states and cameras", at_least=0.1
    )
    image_width: int | None = setting(
        None, "width to which stored pictures are scaled down [px]; none: unchanged", at_least=8
    )
    image_codec: str = one_of("raw", "jpeg", help="stored pictures; jpeg takes a seventh of the space")
    velocities: bool = setting(
        False,
        "record joint velocities, too; a policy that observes them tends to continue its motion and to "
        "ignore the pictures",
    )
    operator: str = setting("", "name of the operator, stored with each episode")
    longest_s: float = setting(120.0, "length at which an episode ends by itself [s]", at_least=1.0)
    min_free_gb: float = setting(
        1.0,
        "free space below which no episode starts [GB]; a running one ends at a quarter of it",
        at_least=0.0,
    )
    device: str = setting(
        "", "local device that drives the arm, such as gamepad, spacemouse or leader; empty: the page"
    )
    policy: str = setting(
        "", "bundle of a policy that may act; empty: none, or one that is trained on the page"
    )
    train: str = setting(
        "steps=1500 batch_size=16 image.widths=[16,32] image.crop=1 chunk=16 execute=16 threads=1 "
        "log_every=20",
        "settings of robo-rl train for the page's button",
    )
    runs: str = setting("", "folder of the policies that the page trains; empty: <out>-policies")
    host: str = setting(LOOPBACK, "address of the page; others than this machine's own need token=")
    port: int = setting(8642, "port of the page; 0: a free one", at_least=0)
    token: str | None = setting(None, "file of the page's token, made if absent; for other machines")
    certificate: str | None = setting(
        None, "PEM file of a certificate: the page is served by HTTPS, which motion sensors of a phone need"
    )
    key: str | None = setting(None, "PEM file of the certificate's key; none: it is in the same file")
    open: bool = setting(True, "open the page in a browser, where there is a screen")
    ui: str = one_of(
        "page", "terminal", "both", help="operated in a browser, by keys in this terminal, or both"
    )


@dataclass
class RecordConfig(RecordingSettings):
    """`robo-rl record`."""

    attach: bool = setting(False, "join nodes that run already, with or without ROS, and start none")
    driver: str | None = setting(
        None, "YAML file of a real robot's driver; none: with robot=sim_arm or attach=true"
    )
    controller: str | None = setting(None, "controller of ros2_control that moves the arm, such as "
                                     "joint_trajectory_controller")  # fmt: skip
    device_settings: str = setting("", "YAML file with further settings of the device, such as mode: tool")
    leader: str = setting("", "device=leader: YAML file of the leader arm's driver or servos")
    record_input: str = setting("", "new file for the device's input, which device=recording:<file> replays")
    arm: bool = setting(
        True, "robot=sim_arm: arm the safety filter at once; real robots are armed on the page"
    )
    seed: int | None = setting(
        None, "robot=sim_arm: seed of the block's places; none: others at each start", at_least=0
    )
    namespace: str = setting("", "namespace of the robot")
    bus: str = one_of("dds", "auto", "rclpy", help="transport of messages; dds needs no ROS")
    seconds: float | None = setting(None, "stop after this time [s]", at_least=0.0)


@dataclass
class RecordAppNodeConfig(NodeConfig, RecordingSettings):
    """`record_app`: drives and records an arm, and serves the page."""

    drives: bool = setting(True, "send the page's driving; false: another program drives")
    resets: bool = setting(False, "call sim_robot/reset between episodes")
