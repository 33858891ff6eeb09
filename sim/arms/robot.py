"""Arms by name: properties that tasks need besides the MJCF. A user's own arm is a YAML file
with these keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from robo_rl.core.errors import ConfigError, RoboRLError, UnknownNameError
from sim.asset_files import ASSETS, read_yaml


@dataclass(frozen=True, slots=True)
class ArmRobot:
    """An arm. Names are those of the MJCF `asset`; servos have the names of their joints, in the same
    order.
    """

    name: str
    asset: str
    joints: tuple[str, ...]
    home_rad: tuple[float, ...]  # elbow up, tool pointing down over the table
    speed_rad_s: tuple[float, ...]  # limits of the manufacturer
    fingers: tuple[str, ...] = ()  # slides, open at `open_m`
    open_m: float = 0.0
    tool: str = "tool"  # a site; z points away from the hand
    gripper: str = "hand"  # a body at the flange, in whose place another hand can be mounted

    @property
    def path(self) -> Path:
        given = Path(self.asset)
        return given if given.is_absolute() or given.is_file() else ASSETS / given


PANDA = ArmRobot(
    name="panda",
    asset="panda.xml",
    joints=tuple(f"joint{i}" for i in range(1, 8)),
    home_rad=(0.0, -math.pi / 8, 0.0, -3 * math.pi / 4, 0.0, 5 * math.pi / 8, math.pi / 4),
    speed_rad_s=(2.175,) * 4 + (2.61,) * 3,
    fingers=("finger_left", "finger_right"),
    open_m=0.04,
)
ROBOTS = {"panda": PANDA}


def load_robot(name: str) -> ArmRobot:
    """A known arm, or one from a YAML file. Raises UnknownNameError or ConfigError."""
    if name in ROBOTS:
        return ROBOTS[name]
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise UnknownNameError("arm", name, (*ROBOTS, "<file>.yaml"))
    if not path.is_file():
        raise ConfigError(
            f"{path} does not exist. Give a robot of robo-rl ({', '.join(ROBOTS)}) or the path of your YAML "
            "file."
        )
    return robot_from(read_yaml(path), path)


@contextmanager
def naming_file(robot: str) -> Iterator[None]:
    """Errors inside the block name the YAML file of this arm. No effect for an arm of robo-rl."""
    try:
        yield
    except RoboRLError as error:
        if robot not in ROBOTS and not re.search(rf"(?<![\w./-]){re.escape(robot)}(?![\w/-])", str(error)):
            error.args = (f"{robot}: {error}",)
        raise


def robot_from(data: object, path: Path) -> ArmRobot:
    """Arm from a file's content; its asset is looked for beside the file. Raises ConfigError that names the
    key.
    """
    known = {field.name for field in fields(ArmRobot)}
    needed = ("name", "asset", "joints", "home_rad", "speed_rad_s")
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path} describes no arm; expected the keys {', '.join(needed)}, and optionally "
            "fingers, open_m, tool, gripper."
        )
    for key in data:
        if key not in known:
            raise UnknownNameError(f"key of {path}", str(key), sorted(known))
    if missing := [key for key in needed if key not in data]:
        raise ConfigError(f"{path} lacks {', '.join(missing)}. docs/own-robot-task-engine.md has an example.")
    asset = _asset_of(str(data["asset"]), path)
    try:
        joints, home_rad, speed_rad_s = (
            _names(data["joints"]),
            _floats(data["home_rad"]),
            _floats(data["speed_rad_s"]),
        )
        fingers, open_m = _names(data.get("fingers", ())), float(data.get("open_m", 0.0))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{path}: {error}. Expected lists: joints and fingers of names, home_rad and speed_rad_s of "
            "numbers."
        ) from error
    robot = ArmRobot(
        str(data["name"]),
        asset,
        joints,
        home_rad,
        speed_rad_s,
        fingers,
        open_m,
        str(data.get("tool", "tool")),
        str(data.get("gripper", "hand")),
    )
    sizes = {len(robot.joints), len(robot.home_rad), len(robot.speed_rad_s)}
    if len(sizes) != 1:
        raise ConfigError(
            f"{path}: joints, home_rad and speed_rad_s have different lengths; expected one entry per joint."
        )
    if not all(math.isfinite(angle) for angle in robot.home_rad):
        raise ConfigError(f"{path}: home_rad is {list(home_rad)}; expected finite angles.")
    if robot.fingers and not 0.0 < robot.open_m < math.inf:
        raise ConfigError(
            f"{path}: open_m is {robot.open_m:g}; expected the distance of an open finger from the middle "
            "in m, above 0, such as 0.04."
        )
    if not all(0.0 < speed < math.inf for speed in robot.speed_rad_s):
        raise ConfigError(f"{path}: speed_rad_s is {list(speed_rad_s)}; expected speeds above 0.")
    return robot


def _asset_of(name: str, path: Path) -> str:
    """Absolute path of the model that a robot's file names. Raises ConfigError."""
    places = (path.parent / name, ASSETS / name)
    asset = next((str(place.resolve()) for place in places if place.is_file()), None)
    if asset is None:
        raise ConfigError(f"{path}: there is no {name}, neither beside it nor among the arms of robo-rl.")
    if asset.endswith(".urdf"):
        raise ConfigError(
            f"{path}: {name} is a URDF, which has no servos and no tool. Save it as MJCF with both; "
            "docs/own-robot-task-engine.md shows how."
        )
    return asset


def _names(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f"found the word '{values}'")
    return tuple(str(value) for value in values)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
