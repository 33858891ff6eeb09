"""What policies are shown and what they command, as the recordings of a robot and its description have it.

Where the settings are silent, most recordings decide: one that was begun by mistake, or is of another arm,
changes nothing for the others.
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
from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import ROBOT_SUITE, ActionSpec, ArraySpec, EnvSpec

T = TypeVar("T")

LOOKED_AT = (
    1000  # messages on joint_states, among which a robot of several drivers has told all its joints once
)


@dataclass(frozen=True)
class RecordingLayout:
    """What is taken from each recording. pictures: key of the observation -> topic; goal: is it shown?"""

    spec: EnvSpec
    action: str
    pictures: dict[str, str]
    goal: bool


@dataclass(frozen=True, slots=True)
class Contents:
    """What one recording holds. velocities: does the robot tell them?"""

    topics: frozenset[str]
    velocities: bool


def survey(
    config: DataImportConfig, robot: RobotDescription, bags: Iterable[Path]
) -> tuple[dict[Path, Contents], dict[str, str]]:
    """What each recording of the robot holds; why others, by name, are none of it."""
    held: dict[Path, Contents] = {}
    left_out: dict[str, str] = {}
    for path in bags:
        try:
            with closing(Bag(path, ros_types(), config.namespace)) as bag:
                held[path] = Contents(frozenset(bag.topics), _tells_velocities(bag, robot))
        except DataError as error:
            left_out[path.name] = str(error)
    return held, left_out


def layout_of(config: DataImportConfig, robot: RobotDescription, held: Sequence[Contents]) -> RecordingLayout:
    """From the settings, and where these are silent as most recordings have it. Says what will not be
    used.
    """
    told = [next((t.name for t in (SAFE, TELEOP) if t.name in each.topics), "") for each in held]
    action = config.action or _most(name for name in told if name)
    if not action:
        raise DataError(
            f"{config.source} holds no commands on '{SAFE.name}' or '{TELEOP.name}'. Say where they are by "
            f"action=, or take what was measured by action={JOINT_STATES.name}. It has "
            f"{', '.join(sorted(frozenset().union(*(each.topics for each in held))))}."
        )
    velocities = (
        config.velocities if config.velocities is not None else bool(_most(each.velocities for each in held))
    )
    pictures = _pictures(config, robot, held)
    wanted = None if config.env is None else _contract(config.env)
    goal = config.goal or ("" if wanted is None else _goal(wanted))
    if config.goal and not parse_unit(config.goal):
        raise ConfigError(
            f"goal={config.goal} cannot be read; expected unit and names, such as 'm: x, y, z'."
        )
    spec = _spec(config, robot, pictures, velocities, goal)
    if wanted is not None:
        _refuse_other(spec, wanted)
    for sentence in _unused(config, robot, held, pictures, goal=bool(goal), velocities=velocities):
        print(f"robo-rl: {sentence}", file=sys.stderr)
    return RecordingLayout(wanted or spec, action, pictures, bool(goal))


def _most(votes: Iterable[T]) -> T | None:
    """What is there most often, and of two the one that came first; None of nothing."""
    counted = Counter(votes).most_common(1)
    return counted[0][0] if counted else None


def _unused(
    config: DataImportConfig,
    robot: RobotDescription,
    held: Sequence[Contents],
    pictures: Mapping[str, str],
    *,
    goal: bool,
    velocities: bool,
) -> list[str]:
    """What was recorded and will not be seen by a policy, although nobody said so."""
    said = []
    if not goal and any(GOAL.name in each.topics for each in held):
        said.append(
            f"'{GOAL.name}' was recorded, and no policy will be shown it; if it shall be: goal='m: x, y, z'."
        )
    tell = sum(each.velocities for each in held)
    if tell and not velocities and config.velocities is None:
        said.append(f"{tell} of {len(held)} recordings tell velocities; to use these alone: velocities=true.")
    if config.cameras is not None:
        return said
    seen = Counter(name for each in held for name in _cameras(each))
    if foreign := sorted(set(seen) - set(robot.cameras)):
        which = ", ".join(foreign)
        said.append(
            f"pictures of {which} were recorded, and the description of '{robot.name}' has no such camera."
        )
    few = [name for name in robot.cameras if seen[name] and IMAGE + name not in pictures]
    return said + [
        f"{seen[it]} of {len(held)} recordings show '{it}'; to use these alone: cameras={it}." for it in few
    ]


def _cameras(held: Contents) -> set[str]:
    """By camera/<name>/...; camera/status is of all of them."""
    return {
        topic.split("/")[1] for topic in held.topics if topic.startswith("camera/") and topic.count("/") > 1
    }


def _tells_velocities(bag: Bag, robot: RobotDescription) -> bool:
    """As the first state of all joints has it. Raises DataError, a clause, where there is none."""
    if JOINT_STATES.name not in bag.topics:
        raise DataError(f"nothing came on '{JOINT_STATES.name}'{_elsewhere(bag)}")
    others: set[str] = set()
    for _, _, state in islice(bag.messages({JOINT_STATES.name}), LOOKED_AT):
        if isinstance(state, JointState) and set(robot.names) <= set(state.names):
            return len(state.velocity_rad_s) == len(state.names)
        others |= set(state.names) if isinstance(state, JointState) else set()
    raise DataError(
        f"no message on '{JOINT_STATES.name}' has all joints of '{robot.name}', it has "
        f"{', '.join(sorted(others))}"
    )


def _elsewhere(bag: Bag) -> str:
    """In which namespace the robot's state was recorded, where it is another than was said."""
    found = [name for name in bag.full_names if name.endswith(f"/{JOINT_STATES.name}")]
    if not found or JOINT_STATES.name in bag.names:
        return ""
    namespace = found[0].removesuffix(JOINT_STATES.name).strip("/")
    return (
        f" there; it is {found[0]}: {f'say namespace={namespace}' if namespace else 'leave namespace= out'}"
    )


def _pictures(config: DataImportConfig, robot: RobotDescription, held: Sequence[Contents]) -> dict[str, str]:
    """Key of the observation -> topic: of cameras that were asked for, else of those that half of them
    show.
    """
    asked = None if config.cameras is None else [name for name in config.cameras.split("+") if name]
    if unknown := [name for name in asked or () if name not in robot.cameras]:
        raise ConfigError(
            f"The camera '{unknown[0]}' is not in the description of '{robot.name}', which has "
            f"{', '.join(robot.cameras) or 'none'}: add it there, with width_px, height_px and rate_hz."
        )
    found: dict[str, str] = {}
    for name in robot.cameras if asked is None else asked:
        topics = [topic(name).name for topic in (image_topic, compressed_topic)]
        there = [next((topic for topic in topics if topic in each.topics), "") for each in held]
        shown = [topic for topic in there if topic]
        if asked is not None or 2 * len(shown) >= max(1, len(held)):
            found[IMAGE + name] = _most(shown) or topics[0]
        if config.depth:
            found[DEPTH + name] = depth_topic(name).name
    return found


def _goal(wanted: EnvSpec) -> str:
    """What a task's `state` holds beside joints, as goal= would name it."""
    unit = wanted.obs["state"].unit if "state" in wanted.obs else ""
    asked = [segment for segment in parse_unit(unit) if segment.unit not in (POSITION, VELOCITY)]
    return "; ".join(f"{segment.unit}: {', '.join(segment.names)}" for segment in asked)


def _spec(
    config: DataImportConfig, robot: RobotDescription, pictures: dict[str, str], velocities: bool, goal: str
) -> EnvSpec:
    """The layout that contract and nodes read: see `hardware.layout`."""
    named = ", ".join(robot.names)
    unit = "; ".join([f"rad: {named}", *([f"rad/s: {named}"] if velocities else []), *filter(None, [goal])])
    obs: dict[str, ArraySpec] = {}
    for key in pictures:
        size = _size(config.image_width, robot.cameras[key.partition(".")[2]])
        obs[key] = (
            ArraySpec((*size, 3), "uint8") if key.startswith(IMAGE) else ArraySpec(size, "float32", "m")
        )
    obs["state"] = ArraySpec((sum(len(segment.names) for segment in parse_unit(unit)),), "float32", unit)
    low, high = (tuple(float(each) for each in robot.column(key)) for key in ("low_rad", "high_rad"))
    action, rate_hz = ActionSpec(low, high, f"rad: {named}"), _rate_hz(config, robot, pictures)
    return EnvSpec(f"{ROBOT_SUITE}/{robot.name}", obs, action, 1, rate_hz)


def _rate_hz(config: DataImportConfig, robot: RobotDescription, pictures: Iterable[str]) -> float:
    """Of frames: as fast as the slowest of commands, states and pictures, faster than which no policy may be
    asked.
    """
    rates = {"commands": robot.command_hz, "states": robot.state_hz}
    rates |= {f"pictures of {key}": robot.cameras[key.partition(".")[2]].rate_hz for key in pictures}
    slowest = min(rates, key=lambda name: rates[name])
    if config.rate_hz is not None and config.rate_hz > rates[slowest]:
        raise ConfigError(
            f"rate_hz={config.rate_hz:g} cannot be used: the description of '{robot.name}' has {slowest} at "
            f"{rates[slowest]:g} Hz, and a policy is not asked more often than it can be shown something new."
        )
    return config.rate_hz or rates[slowest]


def _size(width_px: int | None, camera: CameraDescription) -> tuple[int, int]:
    """(height, width) of the pictures that policies are shown. Raises ConfigError for larger ones than there
    are.
    """
    if width_px is None:
        return camera.height_px, camera.width_px
    size = round(width_px * camera.height_px / camera.width_px), width_px
    if not scalable((camera.height_px, camera.width_px), size):
        raise ConfigError(
            f"image_width={width_px} cannot be used: pictures of {camera.width_px} x {camera.height_px} are "
            "scaled down only, and keep their shape."
        )
    return size


def _contract(env: str) -> EnvSpec:
    """Of a simulated task."""
    from sim.registry import make_env

    with closing(make_env(env, 1)) as made:
        return made.spec


def _refuse_other(spec: EnvSpec, wanted: EnvSpec) -> None:
    """Raises ConfigError that says what of the recordings is not as the simulated task has it."""
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
