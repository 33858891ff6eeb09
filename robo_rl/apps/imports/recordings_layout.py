"""Observations and actions of a dataset imported from recordings of a robot.

Settings that are None are decided by the majority of recordings, so a recording of another arm, or one
started by mistake, has no effect on the others.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from hardware.bus.dds.cdr import ros_types
from hardware.description import CameraDescription, RobotDescription
from hardware.layout import POSITION, VELOCITY, parse_unit
from hardware.loop.observation import DEPTH, IMAGE
from hardware.loop.scale import scalable
from hardware.messages import JointState
from hardware.recording.bag_reader import Bag
from hardware.topics import GOAL, JOINT_STATES, SAFE, TELEOP, compressed_topic, depth_topic, image_topic
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import ROBOT_SUITE, ActionSpec, ArraySpec, EnvSpec

T = TypeVar("T")

# Messages on joint_states after which a robot with several drivers has named all of its joints.
FIRST_STATES = 1000


@dataclass(frozen=True)
class LayoutSettings:
    """Settings of observation and action; None: decided by the recordings."""

    action: str | None  # topic of the commands
    cameras: str | None  # names, joined by "+"
    image_width: int | None
    depth: bool
    velocities: bool | None
    goal: str  # unit and names of the entries of the topic goal
    rate_hz: float | None
    env: str | None  # simulated task whose contract the recordings must have


@dataclass(frozen=True)
class RecordingLayout:
    """Contract of the dataset, and the topics of its data.

    action: topic of the commands. pictures: observation key -> topic. goal: True if the goal is observed.
    """

    spec: EnvSpec
    action: str
    pictures: dict[str, str]
    goal: bool


@dataclass(frozen=True, slots=True)
class Contents:
    """Topics of one recording, and whether its joint states have velocities."""

    topics: frozenset[str]
    velocities: bool


def survey(
    robot: RobotDescription, bags: Iterable[Path], namespace: str
) -> tuple[dict[Path, Contents], dict[str, str]]:
    """Contents of each recording of the robot, and, by name, the reason why others are left out."""
    held: dict[Path, Contents] = {}
    left_out: dict[str, str] = {}
    for path in bags:
        try:
            with closing(Bag(path, ros_types(), namespace)) as bag:
                held[path] = Contents(frozenset(bag.topics), _has_velocities(bag, robot))
        except DataError as error:
            left_out[path.name] = str(error)
    return held, left_out


def layout_of(settings: LayoutSettings, robot: RobotDescription, held: Sequence[Contents]) -> RecordingLayout:
    """Layout by the settings and, where these are None, by the majority. Prints what is not used."""
    action = settings.action or _command_topic(held)
    voted = bool(_most(each.velocities for each in held))
    velocities = voted if settings.velocities is None else settings.velocities
    pictures = _pictures(robot, held, settings.cameras, settings.depth)
    wanted = None if settings.env is None else _contract(settings.env)
    goal = settings.goal or ("" if wanted is None else _goal(wanted))
    spec = robot_spec(robot, pictures, settings.image_width, velocities, goal, settings.rate_hz)
    if wanted is not None:
        _refuse_other(spec, wanted)
    for sentence in _unused(settings, robot, held, pictures, goal=bool(goal), velocities=velocities):
        print(f"robo-rl: {sentence}", file=sys.stderr)
    return RecordingLayout(wanted or spec, action, pictures, bool(goal))


def _command_topic(held: Sequence[Contents]) -> str:
    """Command topic that most recordings have."""
    found = [next((t.name for t in (SAFE, TELEOP) if t.name in each.topics), "") for each in held]
    if not (action := _most(name for name in found if name)):
        raise DataError(
            f"The recordings hold no commands on '{SAFE.name}' or '{TELEOP.name}'. Name their topic by "
            f"action=, or take the measured positions by action={JOINT_STATES.name}. They have "
            f"{', '.join(sorted(frozenset().union(*(each.topics for each in held))))}."
        )
    return action


def _most(votes: Iterable[T]) -> T | None:
    """Most frequent value, the first one on a tie; None without values."""
    counted = Counter(votes).most_common(1)
    return counted[0][0] if counted else None


def _unused(
    settings: LayoutSettings,
    robot: RobotDescription,
    held: Sequence[Contents],
    pictures: Mapping[str, str],
    *,
    goal: bool,
    velocities: bool,
) -> list[str]:
    """Sentences on recorded topics that are not used because no setting names them."""
    sentences = []
    if not goal and any(GOAL.name in each.topics for each in held):
        sentences.append(f"'{GOAL.name}' was recorded but is not used; to observe it: goal='m: x, y, z'.")
    tell = sum(each.velocities for each in held)
    if tell and not velocities and settings.velocities is None:
        sentences.append(
            f"{tell} of {len(held)} recordings have velocities; to use only these: velocities=true."
        )
    if settings.cameras is not None:
        return sentences
    seen = Counter(name for each in held for name in _cameras(each))
    if foreign := sorted(set(seen) - set(robot.cameras)):
        which = ", ".join(foreign)
        sentences.append(
            f"images of {which} were recorded, but the description of '{robot.name}' has no such camera."
        )
    few = [name for name in robot.cameras if seen[name] and IMAGE + name not in pictures]
    return sentences + [
        f"{seen[it]} of {len(held)} recordings have '{it}'; to use only these: cameras={it}." for it in few
    ]


def _cameras(held: Contents) -> set[str]:
    """Cameras by their topics camera/<name>/...; camera/status is shared by all."""
    return {
        topic.split("/")[1] for topic in held.topics if topic.startswith("camera/") and topic.count("/") > 1
    }


def _has_velocities(bag: Bag, robot: RobotDescription) -> bool:
    """True if the first state of all joints has velocities. Raises DataError (a clause) without such a
    state.
    """
    if JOINT_STATES.name not in bag.topics:
        raise DataError(f"nothing came on '{JOINT_STATES.name}'{_elsewhere(bag)}")
    others: set[str] = set()
    for _, _, state in islice(bag.messages({JOINT_STATES.name}), FIRST_STATES):
        if isinstance(state, JointState) and set(robot.names) <= set(state.names):
            return len(state.velocity_rad_s) == len(state.names)
        others |= set(state.names) if isinstance(state, JointState) else set()
    raise DataError(
        f"no message on '{JOINT_STATES.name}' has all joints of '{robot.name}', it has "
        f"{', '.join(sorted(others))}"
    )


def _elsewhere(bag: Bag) -> str:
    """Hint at the namespace of the robot's state if it differs from the given one."""
    found = [name for name in bag.full_names if name.endswith(f"/{JOINT_STATES.name}")]
    if not found or JOINT_STATES.name in bag.names:
        return ""
    namespace = found[0].removesuffix(JOINT_STATES.name).strip("/")
    return (
        f" there; it is {found[0]}: {f'give namespace={namespace}' if namespace else 'leave namespace= out'}"
    )


def _pictures(
    robot: RobotDescription, held: Sequence[Contents], cameras: str | None, depth: bool
) -> dict[str, str]:
    """Observation key -> topic, of the named cameras, or else of those in at least half of the recordings."""
    chosen = None if cameras is None else [name for name in cameras.split("+") if name]
    for name in chosen or ():
        described_camera(robot, IMAGE + name, "leave it out of cameras=")
    found: dict[str, str] = {}
    for name in robot.cameras if chosen is None else chosen:
        topics = [topic(name).name for topic in (image_topic, compressed_topic)]
        there = [next((topic for topic in topics if topic in each.topics), "") for each in held]
        shown = [topic for topic in there if topic]
        if chosen is not None or 2 * len(shown) >= max(1, len(held)):
            found[IMAGE + name] = _most(shown) or topics[0]
        if depth:
            found[DEPTH + name] = depth_topic(name).name
    return found


def _goal(wanted: EnvSpec) -> str:
    """Unit and names of a task's `state` entries other than joints, in the form of goal=."""
    unit = wanted.obs["state"].unit if "state" in wanted.obs else ""
    segments = [segment for segment in parse_unit(unit) if segment.unit not in (POSITION, VELOCITY)]
    return "; ".join(f"{segment.unit}: {', '.join(segment.names)}" for segment in segments)


def robot_spec(
    robot: RobotDescription,
    pictures: Iterable[str],
    image_width: int | None,
    velocities: bool,
    goal: str,
    rate_hz: float | None,
) -> EnvSpec:
    """Contract of a robot's data, in the layout of `hardware.layout` that contract and nodes read.

    pictures: observation keys "image.<camera>" and "depth.<camera>". goal: unit and names of the goal's
    entries; empty if it is not observed. The episode length is 1; the importer sets it.
    """
    if goal and not parse_unit(goal):
        raise ConfigError(f"goal={goal} cannot be read; expected unit and names, such as 'm: x, y, z'.")
    pictures = list(pictures)
    named = ", ".join(robot.names)
    unit = "; ".join([f"rad: {named}", *([f"rad/s: {named}"] if velocities else []), *filter(None, [goal])])
    obs: dict[str, ArraySpec] = {}
    for key in pictures:
        size = _size(image_width, described_camera(robot, key))
        obs[key] = (
            ArraySpec((*size, 3), "uint8") if key.startswith(IMAGE) else ArraySpec(size, "float32", "m")
        )
    obs["state"] = ArraySpec((sum(len(segment.names) for segment in parse_unit(unit)),), "float32", unit)
    low, high = (tuple(float(each) for each in robot.column(key)) for key in ("low_rad", "high_rad"))
    action = ActionSpec(low, high, f"rad: {named}")
    return EnvSpec(f"{ROBOT_SUITE}/{robot.name}", obs, action, 1, _rate_hz(robot, pictures, rate_hz))


def described_camera(
    robot: RobotDescription, key: str, otherwise: str = "leave it out or rename it by keys="
) -> CameraDescription:
    """Camera of an observation key. Raises ConfigError if the description has none of this name. otherwise:
    what else a user can do.
    """
    name = key.partition(".")[2]
    if name not in robot.cameras:
        raise ConfigError(
            f"The camera '{name}' is not in the description of '{robot.name}', which has "
            f"{', '.join(robot.cameras) or 'none'}: add it there, with width_px, height_px and rate_hz, or "
            f"{otherwise}."
        )
    return robot.cameras[name]


def _rate_hz(robot: RobotDescription, pictures: Iterable[str], asked_hz: float | None) -> float:
    """Frame rate: the slowest of commands, states and images, or a lower one that was requested."""
    rates = {"commands": robot.command_hz, "states": robot.state_hz}
    rates |= {f"pictures of {key}": described_camera(robot, key).rate_hz for key in pictures}
    slowest = min(rates, key=lambda name: rates[name])
    if asked_hz is not None and asked_hz > rates[slowest]:
        raise ConfigError(
            f"rate_hz={asked_hz:g} cannot be used: the description of '{robot.name}' has {slowest} at "
            f"{rates[slowest]:g} Hz, and a policy cannot run faster than its observations. Give at most "
            f"{rates[slowest]:g}, or leave it out."
        )
    return asked_hz or rates[slowest]


def _size(width_px: int | None, camera: CameraDescription) -> tuple[int, int]:
    """(height, width) of a camera's observation. Raises ConfigError for one larger than its images."""
    if width_px is None:
        return camera.height_px, camera.width_px
    size = round(width_px * camera.height_px / camera.width_px), width_px
    if not scalable((camera.height_px, camera.width_px), size):
        raise ConfigError(
            f"image_width={width_px} cannot be used: images of {camera.width_px} x {camera.height_px} are "
            "only scaled down, with a fixed aspect ratio."
        )
    return size


def _contract(env: str) -> EnvSpec:
    """Contract of a simulated task."""
    from sim.registry import make_env

    with closing(make_env(env, 1)) as made:
        return made.spec


def _refuse_other(spec: EnvSpec, wanted: EnvSpec) -> None:
    """Raise ConfigError that names the first difference to the simulated task."""
    for what, found, expected in (
        ("observations", _words(spec), _words(wanted)),
        ("actions", spec.action.unit, wanted.action.unit),
        ("rate [Hz]", f"{spec.control_hz:g}", f"{wanted.control_hz:g}"),
    ):
        if found != expected:
            raise ConfigError(
                f"The {what} of the recordings are {found}; those of {wanted.name} are {expected}."
            )


def _words(spec: EnvSpec) -> str:
    return ", ".join(f"{key} {tuple(each.shape)} [{each.unit}]" for key, each in sorted(spec.obs.items()))
