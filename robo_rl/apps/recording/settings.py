"""Settings of the recording app's node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hardware.description import RobotDescription
from robo_rl.core.spec import EnvSpec


@dataclass(frozen=True)
class AppSettings:
    """What is recorded, and how. drives: False where another program drives the arm."""

    robot: RobotDescription
    spec: EnvSpec
    cameras: tuple[str, ...]
    out: Path
    transport: str = "raw"
    drives: bool = True
    operator: str = ""
    resets: bool = False  # the robot is simulated: a new episode puts it back to its start
    floor_bytes: int = 2**30
