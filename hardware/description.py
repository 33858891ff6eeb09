"""Description of a robot arm: joints, limits, message rates, cameras and workspace, from YAML or JSON.

The safety filter takes its limits from the description, and bundles are compared with it before the robot
moves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.plain_values import Vec3, integer, mapping, number, sequence, text, vector
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.shapes import Bool, Float

FOLDER = Path(__file__).parent / "robots"
# Default of step_rad: the distance that a joint travels in this time at its velocity limit.
LAG_S = 0.1
# Plausibility limits: four turns either way; ten times the velocity and acceleration of fast arms.
LARGEST = {
    "low_rad": 8.0 * math.pi,
    "high_rad": 8.0 * math.pi,
    "velocity_rad_s": 100.0,
    "acceleration_rad_s2": 10_000.0,
}
LARGEST_START_JUMP_RAD = math.pi
LARGEST_PLACE_M = 20.0  # of any arm; millimetres are mostly above it
LEAST_AXIS = 1e-6  # length below which an axis is no direction
# Plausible rates of messages. Age limits follow from them: at 0.001 Hz a state would be valid for an hour.
LEAST_HZ, MOST_HZ = 1.0, 10_000.0
# Arm, gripper and two more. A larger number would switch off the stop that a second publisher causes.
MOST_STATE_PUBLISHERS = 4


@dataclass(frozen=True, slots=True)
class Joint:
    """Limits of one joint, and its place in the kinematic chain.

    step_rad: largest distance between a command and the measured position, at most the joint's range; None:
    0.1 s at velocity_rad_s. axis, offset_m: axis of rotation and origin in the frame of the previous joint,
    at position zero. They are needed for a workspace and for motion of the tool.
    """

    name: str
    low_rad: float
    high_rad: float
    velocity_rad_s: float
    acceleration_rad_s2: float
    step_rad: float | None = None
    axis: Vec3 | None = None
    offset_m: Vec3 | None = None


@dataclass(frozen=True, slots=True)
class CameraDescription:
    """Size and rate of a camera's pictures.

    source: device that a camera node opens (see `hardware.camera.source.open_source`); empty: another program
    publishes the pictures.
    """

    width_px: int
    height_px: int
    rate_hz: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """Allowed axis-aligned box for elbow, wrist and tool, in the frame of the arm's base."""

    low_m: Vec3
    high_m: Vec3


@dataclass(frozen=True, slots=True)
class GripperDescription:
    """The joint that opens and closes the gripper, and its positions, in the unit of its joint_states."""

    joint: str
    open_at: float
    closed_at: float


@dataclass(frozen=True)
class RobotDescription:
    """Properties of an arm that have to be known before it moves. Raises ConfigError for implausible values.

    command_hz, state_hz: rates of commands and of measured states.
    start_jump_rad: largest distance between a policy's first command and the measured position; at most pi.
    tool_m: position of the tool in the frame of the last joint; None: the origin of that frame.
    frame_id: frame of the arm's base, in the headers of joint states and trajectories.
    state_publishers: of `joint_states`, up to 4; more than one where a gripper publishes there, too.
    gripper: which of the joints is the gripper, if it has one. It is limited, recorded and commanded as the
    others; its values are in m where it slides. It does not move the tool.
    """

    name: str
    command_hz: float
    state_hz: float
    joints: tuple[Joint, ...]
    cameras: Mapping[str, CameraDescription] = field(default_factory=dict)
    start_jump_rad: float = 0.3
    workspace: Box | None = None
    tool_m: Vec3 | None = None
    frame_id: str = "base_link"
    state_publishers: int = 1
    gripper: GripperDescription | None = None

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Joint names, in the order of the description."""
        return tuple(joint.name for joint in self.joints)

    def column(self, key: str) -> Float[ndarray, " j"]:
        """One field of every joint, such as "low_rad", in the order of the description."""
        return np.array([getattr(joint, key) for joint in self.joints], dtype=np.float64)

    @cached_property
    def is_gripper(self) -> Bool[ndarray, " j"]:
        """True for the joint of the gripper, in the order of the description."""
        return np.array([self.gripper is not None and self.gripper.joint == name for name in self.names])

    @property
    def step_rad(self) -> Float[ndarray, " j"]:
        """Largest distance of each joint between a command and the measured position.

        A gripper that holds an object is commanded further than it gets; its default is its whole range.
        """
        lags = np.where(
            self.is_gripper,
            self.column("high_rad") - self.column("low_rad"),
            LAG_S * self.column("velocity_rad_s"),
        )
        own = [joint.step_rad for joint in self.joints]
        return np.array([lag if step is None else step for lag, step in zip(lags, own, strict=True)])


def list_robots() -> list[str]:
    """Names of the robots whose description is part of the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_description(name: str) -> RobotDescription:
    """Description of a robot by its name, or from the path of a YAML or JSON file.

    Raises UnknownNameError for an unknown name and ConfigError for a file that cannot be used.
    """
    if name.endswith((".yaml", ".yml", ".json")):
        path = Path(name)
        if not path.is_file():
            raise ConfigError(
                f"The robot's description {name} does not exist (looked in {Path.cwd()}). Give the path of a "
                f"file, or one of the included robots: {', '.join(list_robots())}."
            )
    else:
        path = FOLDER / f"{name}.yaml"
        if name not in list_robots():
            raise UnknownNameError("robot", name, [*list_robots(), "<your file>.yaml"])
    return parse_description(_read(path), str(path))


def parse_description(data: Any, source: str) -> RobotDescription:
    """Description from the parsed content of a file. Raises ConfigError that names `source` and the key."""
    if not isinstance(data, Mapping):
        found = type(data).__name__
        raise ConfigError(f"{source} holds {found}, expected 'key: value' lines as in sim_arm.yaml.")
    mapping(data, f"{source}: a robot", _names(RobotDescription), _needed(RobotDescription))
    body: dict[str, Any] = {"name": text(data["name"], f"{source}: name")}
    joints = sequence(data["joints"], f"{source}: joints")
    body["joints"] = tuple(_joint(item, f"{source}: joints[{i}]") for i, item in enumerate(joints))
    cameras = mapping(data.get("cameras") or {}, f"{source}: cameras")
    body["cameras"] = {
        str(name): _camera(item, f"{source}: camera '{name}'") for name, item in cameras.items()
    }
    if (box := data.get("workspace")) is not None:
        where = f"{source}: workspace"
        mapping(box, where, _names(Box), _needed(Box))
        body["workspace"] = Box(
            vector(box["low_m"], f"{where}: low_m"), vector(box["high_m"], f"{where}: high_m")
        )
    if (gripper := data.get("gripper")) is not None:
        where = f"{source}: gripper"
        mapping(gripper, where, _names(GripperDescription), _needed(GripperDescription))
        ends = (number(gripper[key], f"{where}: {key}") for key in ("open_at", "closed_at"))
        body["gripper"] = GripperDescription(text(gripper["joint"], f"{where}: joint"), *ends)
    if data.get("tool_m") is not None:
        body["tool_m"] = vector(data["tool_m"], f"{source}: tool_m")
    if data.get("state_publishers") is not None:
        body["state_publishers"] = integer(data["state_publishers"], f"{source}: state_publishers")
    if data.get("frame_id") is not None:
        body["frame_id"] = text(data["frame_id"], f"{source}: frame_id")
    for key in ("command_hz", "state_hz", "start_jump_rad"):
        if data.get(key) is not None:
            body[key] = number(data[key], f"{source}: {key}")
    return RobotDescription(**body)


def _read(path: Path) -> Any:
    try:
        content = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as a robot's description: {error}.") from error
    if path.suffix == ".json":
        try:
            return json.loads(content)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{path} is not JSON: {error}.") from error
    import yaml  # imported here so that drivers can be used without it

    # The parser in C is ten times as fast; PyYAML is also built without it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(content, loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error


def _joint(item: Any, where: str) -> Joint:
    mapping(item, where, _names(Joint), _needed(Joint))
    values: dict[str, Any] = {"name": text(item["name"], f"{where}: name")}
    where = f"{where} '{values['name']}'"
    for key in ("low_rad", "high_rad", "velocity_rad_s", "acceleration_rad_s2", "step_rad"):
        if item.get(key) is not None:
            values[key] = number(item[key], f"{where}: {key}")
    for key in ("axis", "offset_m"):
        if item.get(key) is not None:
            values[key] = vector(item[key], f"{where}: {key}")
    return Joint(**values)


def _camera(item: Any, where: str) -> CameraDescription:
    mapping(item, where, _names(CameraDescription), _needed(CameraDescription))
    width, height = (integer(item[key], f"{where}: {key}") for key in ("width_px", "height_px"))
    source = item.get("source")
    named = (
        str(source) if isinstance(source, int) else "" if source is None else text(source, f"{where}: source")
    )
    return CameraDescription(width, height, number(item["rate_hz"], f"{where}: rate_hz"), named)


def _names(kind: Any) -> list[str]:
    return [item.name for item in fields(kind)]


def _needed(kind: Any) -> list[str]:
    """Names of the fields without a default."""
    return [item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING]


def _check(robot: RobotDescription) -> None:
    """Raise ConfigError for implausible values."""
    _check_joints(robot)
    for name, camera in robot.cameras.items():
        for key in ("width_px", "height_px", "rate_hz"):
            _positive(f"{robot.name}.cameras.{name}", key, getattr(camera, key))
    if robot.gripper is not None:
        _check_gripper(robot, robot.gripper)
    _check_kinematics(robot)
    if robot.workspace is not None:
        _check_box(robot, robot.workspace)


def _check_joints(robot: RobotDescription) -> None:
    if not robot.joints or len(set(robot.names)) != len(robot.joints):
        raise ConfigError(
            f"Robot '{robot.name}' needs joints with different names, found {list(robot.names)}."
        )
    for key in ("command_hz", "state_hz", "start_jump_rad", "state_publishers"):
        _positive(robot.name, key, getattr(robot, key))
    if robot.state_publishers > MOST_STATE_PUBLISHERS:
        raise ConfigError(
            f"state_publishers = {robot.state_publishers} of '{robot.name}': expected 1 to "
            f"{MOST_STATE_PUBLISHERS}, because one publisher more than that stops the arm."
        )
    _check_rates(robot)
    if robot.start_jump_rad > LARGEST_START_JUMP_RAD:
        raise ConfigError(
            f"start_jump_rad = {robot.start_jump_rad:g} of '{robot.name}': expected at most "
            f"{LARGEST_START_JUMP_RAD:.4g}. Angles are in radians: divide degrees by 57.296."
        )
    for joint in robot.joints:
        if not -math.inf < joint.low_rad < joint.high_rad < math.inf:
            raise ConfigError(
                f"Joint '{joint.name}' of '{robot.name}' needs finite low_rad < high_rad, found "
                f"{joint.low_rad:g} and {joint.high_rad:g}."
            )
        for key in ("velocity_rad_s", "acceleration_rad_s2"):
            _positive(f"{robot.name}.{joint.name}", key, getattr(joint, key))
        _check_magnitude(robot.name, joint)
        if joint.step_rad is not None:
            _positive(f"{robot.name}.{joint.name}", "step_rad", joint.step_rad)
            if joint.step_rad > (most := joint.high_rad - joint.low_rad) + 1e-9:
                raise ConfigError(
                    f"Joint '{joint.name}' of '{robot.name}' has step_rad {joint.step_rad:g}; expected at "
                    f"most its range, {most:.4g}. Angles are in radians: divide degrees by 57.296."
                )


def _check_kinematics(robot: RobotDescription) -> None:
    """Refuse directions and places with which the pose of the tool cannot be computed."""
    places = {f"offset_m of '{joint.name}'": joint.offset_m for joint in robot.joints} | {
        "tool_m": robot.tool_m
    }
    for name, place in places.items():
        if place is not None and not all(math.isfinite(value) for value in place):
            raise ConfigError(f"{name} of '{robot.name}' must be finite, found {list(place)}.")
        if place is not None:
            _check_metres(f"{name} of '{robot.name}'", place)
    for joint in robot.joints:
        if joint.axis is not None and not LEAST_AXIS <= math.hypot(*joint.axis) < math.inf:
            raise ConfigError(
                f"axis of '{joint.name}' of '{robot.name}' is {list(joint.axis)}; give a direction, such as "
                "[0, 0, 1]."
            )


def _check_gripper(robot: RobotDescription, gripper: GripperDescription) -> None:
    if gripper.joint not in robot.names or len(robot.joints) < 2:
        raise ConfigError(
            f"The gripper of '{robot.name}' is the joint '{gripper.joint}', expected one of "
            f"{', '.join(robot.names)} beside those of an arm."
        )
    joint = robot.joints[robot.names.index(gripper.joint)]
    for key in ("open_at", "closed_at"):
        if not joint.low_rad <= (value := getattr(gripper, key)) <= joint.high_rad:
            raise ConfigError(
                f"{key} = {value:g} of the gripper of '{robot.name}' is outside the range of "
                f"'{joint.name}', {joint.low_rad:g} to {joint.high_rad:g}."
            )
    if gripper.open_at == gripper.closed_at:
        raise ConfigError(f"The gripper of '{robot.name}' is open and closed at {gripper.open_at:g}.")


def _check_rates(robot: RobotDescription) -> None:
    for key in ("command_hz", "state_hz"):
        if not LEAST_HZ <= (rate_hz := getattr(robot, key)) <= MOST_HZ:
            raise ConfigError(
                f"{key} = {rate_hz} of '{robot.name}': expected {LEAST_HZ:g} to {MOST_HZ:g} Hz, because the "
                "age limits of messages follow from it."
            )


def _check_magnitude(robot: str, joint: Joint) -> None:
    """Refuse degrees and typing errors, which the safety filter would enforce as radians."""
    for key, largest in LARGEST.items():
        if abs(value := getattr(joint, key)) > largest:
            raise ConfigError(
                f"Joint '{joint.name}' of '{robot}' has {key} {value:g}; expected a magnitude of at most "
                f"{largest:.4g}. Angles are in radians: divide degrees by 57.296."
            )


def _check_metres(name: str, place: Vec3) -> None:
    """Refuse millimetres: a workspace a thousand times too large would stop nothing. Infinite is an open
    side.
    """
    if any(LARGEST_PLACE_M < abs(value) < math.inf for value in place):
        raise ConfigError(
            f"{name} is {list(place)}; expected at most {LARGEST_PLACE_M:g} on each axis. Lengths are in "
            "metres: divide millimetres by 1000."
        )


def _check_box(robot: RobotDescription, box: Box) -> None:
    for key in ("low_m", "high_m"):
        _check_metres(f"{key} of the workspace of '{robot.name}'", getattr(box, key))
    if not all(low < high for low, high in zip(box.low_m, box.high_m, strict=True)):  # also false for NaN
        raise ConfigError(f"The workspace of '{robot.name}' is empty: {box.low_m} to {box.high_m} m.")
    arm = [joint for joint, grips in zip(robot.joints, robot.is_gripper, strict=True) if not grips]
    if missing := [joint.name for joint in arm if joint.axis is None or joint.offset_m is None]:
        raise ConfigError(
            f"The workspace of '{robot.name}' needs axis and offset_m of every joint; {', '.join(missing)} "
            "lack them. Add them, or remove workspace."
        )


def _positive(owner: str, key: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ConfigError(f"{key} = {value} of '{owner}' must be above 0 and finite.")
