"""Settings of `robo-rl data replay|show|stats|repair`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.datasets.review import DATASET, DRY_RUN
from robo_rl.conf.fields import REQUIRED, one_of, setting

EPISODE = "number of the episode, as in robo-rl data list"


@dataclass
class DataReplayConfig:
    """`robo-rl data replay`."""

    path: str = setting(REQUIRED, DATASET)
    episode: int = setting(0, EPISODE, at_least=0)
    env: str | None = setting(None, "environment; none: the one of the dataset")
    seed: int | None = setting(None, "seed of the reset; none: that of the episode", at_least=0)
    tolerance: float = setting(
        0.01, "largest difference, in fractions of an observation's range, with exit code 0", at_least=0.0
    )
    robot: str | None = setting(
        None, "robot that is running, by name or description: play as teleoperation; none: the simulator"
    )
    approach_rad_s: float = setting(
        0.0,
        "with robot=: largest joint speed at which the arm first moves to the start of the episode [rad/s]; "
        "0: it must be there",
        at_least=0.0,
        at_most=1.0,
    )
    bus: str = one_of("auto", "rclpy", "dds", help="bus of the robot; auto: rclpy where it can be imported")
    namespace: str = setting("", "namespace of the robot's topics; empty: none")


@dataclass
class DataShowConfig:
    """`robo-rl data show`."""

    path: str = setting(REQUIRED, DATASET)
    episode: int = setting(0, EPISODE, at_least=0)
    out: str | None = setting(
        None, "picture (.png) with images and curves, or video (.mp4) of the cameras; none: text only"
    )


@dataclass
class DataStatsConfig:
    """`robo-rl data stats`."""

    path: str = setting(REQUIRED, DATASET)
    json: bool = setting(False, "print one JSON object instead of text")


@dataclass
class DataRepairConfig:
    """`robo-rl data repair`."""

    path: str = setting(REQUIRED, DATASET)
    drop: bool = setting(False, "delete the episodes that cannot be repaired")
    dry_run: bool = setting(False, DRY_RUN)
