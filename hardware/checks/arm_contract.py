"""Check that a bundle fits an arm, before anything moves. Each mismatch is one sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hardware.checks.flight_contract import CRAFTS, TASKS
from hardware.description import RobotDescription
from hardware.layout import POSITION, VELOCITY, Segment, action_joints, parse_unit
from hardware.loop.head_networks import head_fault
from hardware.loop.observation import DEPTH, IMAGE, unavailable_message
from hardware.loop.scale import scalable
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import CheckpointError
from robo_rl.core.text.commands import command
from robo_rl.core.text.instruction import INSTRUCTION

_SLACK_RAD, _SLACK = 1e-4, 1e-3


def check_contract(bundle: Bundle, robot: RobotDescription) -> None:
    """Raise CheckpointError that lists all mismatches between bundle and robot."""
    found = list(mismatches(bundle, robot))
    if found:
        raise CheckpointError(
            f"The bundle {bundle.folder} does not fit the robot '{robot.name}': {' '.join(found)} "
            f"{_advice(bundle, robot)}"
        )


def _advice(bundle: Bundle, robot: RobotDescription) -> str:
    """Sentence on what to do about a mismatch."""
    env = bundle.env
    if env.name.startswith(CRAFTS):
        held = env.name.partition(":")[0] in TASKS  # other tasks fly in their environment only
        fly = command("run", bundle=bundle.folder, robot="sim_quad" if held else None)
        return f"It was trained to fly a quadcopter; fly it in simulation: {fly}"
    nameless = "state" in env.obs and not parse_unit(env.obs["state"].unit)
    if len(action_joints(env.action.unit)) == env.action.dim and not nameless:
        return "Use the robot that the bundle was made for, or correct the robot's description."
    return (
        "The units come from the dataset: if its numbers are those of this robot, import them again with "
        f"robo-rl data import ... robot={robot.name}, or write them as in "
        f'"rad: {", ".join(robot.names)}", in the order of its columns, in the EnvSpec that recorded it, or '
        "in its dataset.json, and train again."
    )


def goal_segments(bundle: Bundle) -> tuple[Segment, ...]:
    """Segments of the observation 'state' that come from the topic 'goal'.

    They are the segments that are neither positions nor velocities of joints.
    """
    unit = bundle.env.obs["state"].unit if "state" in bundle.env.obs else ""
    return tuple(segment for segment in parse_unit(unit) if segment.unit not in (POSITION, VELOCITY))


def goal_names(bundle: Bundle) -> tuple[str, ...]:
    """Names of the numbers on the topic 'goal' that the bundle observes."""
    return tuple(name for segment in goal_segments(bundle) for name in segment.names)


def check_goal(bundle: Bundle, size: int, source: str) -> None:
    """Raise CheckpointError unless a goal of `size` numbers fits the bundle.

    source: its publisher in words.
    """
    names = goal_names(bundle)
    if len(names) != size:
        unit = "; ".join(f"{segment.unit}: {', '.join(segment.names)}" for segment in goal_segments(bundle))
        expected = f"a goal of {len(names)} numbers ({unit})" if names else "no goal"
        raise CheckpointError(
            f"The bundle {bundle.folder} observes {expected}, but {source} sends {size} numbers. Send the "
            "numbers of the bundle, in its order, or use a bundle that was trained on this task."
        )


def mismatches(bundle: Bundle, robot: RobotDescription) -> Iterator[str]:
    """One sentence per mismatch: joint names, limits, rates, observations, cameras."""
    joints = action_joints(bundle.env.action.unit)
    if len(joints) != bundle.env.action.dim:
        yield (
            f"It commands '{bundle.env.action.unit or 'numbers without a unit'}' ({bundle.env.name}), but an "
            "arm expects one named joint position per number, 'rad: <joint>, ...'."
        )
        return
    yield from _names(joints, robot)
    if set(joints) == set(robot.names):
        yield from _limits(bundle, joints, robot)
    yield from _rates(bundle, robot)
    yield from _state(bundle, robot)
    yield from _cameras(bundle, robot)


def _names(joints: tuple[str, ...], robot: RobotDescription) -> Iterator[str]:
    if missing := [name for name in joints if name not in robot.names]:
        yield (
            f"It commands the joints {', '.join(missing)}, which the robot does not have "
            f"({', '.join(robot.names)})."
        )
    if left := [name for name in robot.names if name not in joints]:
        yield f"It does not command the joints {', '.join(left)}."


def _limits(bundle: Bundle, joints: tuple[str, ...], robot: RobotDescription) -> Iterator[str]:
    """The action range of each joint has to be inside the robot's range."""
    limits = {joint.name: joint for joint in robot.joints}
    for name, low, high in zip(joints, bundle.env.action.low, bundle.env.action.high, strict=True):
        joint = limits[name]
        if low < joint.low_rad - _SLACK_RAD or high > joint.high_rad + _SLACK_RAD:
            yield (
                f"Joint {name} is commanded from {low:.3g} to {high:.3g} rad; the robot's range is "
                f"{joint.low_rad:.3g} to {joint.high_rad:.3g} rad."
            )


def _rates(bundle: Bundle, robot: RobotDescription) -> Iterator[str]:
    named = {"control": bundle.env.control_hz, **bundle.manifest["rates_hz"]}
    unusable = {name: hz for name, hz in named.items() if not 0.0 < float(hz) < math.inf}  # refuses NaN, too
    if unusable:
        rates = ", ".join(f"{name} {hz:g} Hz" for name, hz in unusable.items())
        yield f"Its manifest has unusable rates: {rates}; expected finite positive numbers."
        return
    control_hz, command_hz = bundle.env.control_hz, robot.command_hz
    if control_hz > command_hz * (1.0 + _SLACK):
        yield f"It sends commands at {control_hz:g} Hz, but the robot takes them at {command_hz:g} Hz."
    needed = float(bundle.manifest["rates_hz"].get("state", 0.0))
    if needed > robot.state_hz * (1.0 + _SLACK):
        yield f"It observes states at {needed:g} Hz, but the robot sends them at {robot.state_hz:g} Hz."


def _state(bundle: Bundle, robot: RobotDescription) -> Iterator[str]:
    """The joints of the observation 'state' have to be the robot's."""
    if "state" not in bundle.env.obs:
        return
    segments = parse_unit(bundle.env.obs["state"].unit)
    if not segments:
        yield (
            "The unit of its observation 'state' does not name the numbers, so they cannot be taken from the "
            "robot's topics."
        )
    observed = {name for s in segments if s.unit in (POSITION, VELOCITY) for name in s.names}
    if unknown := sorted(observed - set(robot.names)):
        yield f"It observes the joints {', '.join(unknown)}, which the robot does not have."


def _cameras(bundle: Bundle, robot: RobotDescription) -> Iterator[str]:
    given = {"state", INSTRUCTION}
    if unknown := [key for key in bundle.env.obs if key not in given and not key.startswith((IMAGE, DEPTH))]:
        yield unavailable_message(unknown)
    if fault := head_fault(bundle):
        yield fault
    for key, spec in bundle.env.obs.items():
        if not key.startswith((IMAGE, DEPTH)):
            continue
        name = key.partition(".")[2]
        camera = robot.cameras.get(name)
        if camera is None:
            yield f"It needs the camera '{name}'; the robot has {', '.join(robot.cameras) or 'none'}."
            continue
        height, width = spec.shape[:2]
        if not scalable((camera.height_px, camera.width_px), (height, width)):
            yield (
                f"It expects {width} x {height} pictures of the camera '{name}', and the robot's "
                f"{camera.width_px} x {camera.height_px} pictures cannot be scaled down to that size."
            )
        needed = float(bundle.manifest["rates_hz"].get(key, 0.0))
        if needed > camera.rate_hz * (1.0 + _SLACK):
            yield f"It needs the camera '{name}' at {needed:g} Hz; the robot's has {camera.rate_hz:g} Hz."
