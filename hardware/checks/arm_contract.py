"""Does a bundle fit a robot? Asked before anything moves; every mismatch is one sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hardware.description import RobotDescription
from hardware.layout import POSITION, VELOCITY, Segment, action_joints, parse_unit
from hardware.loop.observation import DEPTH, IMAGE, untold
from hardware.loop.scale import scalable
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import CheckpointError

_SLACK_RAD, _SLACK = 1e-4, 1e-3


def check_contract(bundle: Bundle, robot: RobotDescription) -> None:
    """Raises CheckpointError with all mismatches."""
    found = list(mismatches(bundle, robot))
    if found:
        raise CheckpointError(
            f"The bundle '{bundle.name}' does not fit the robot '{robot.name}': {' '.join(found)} "
            "Use the robot that it was made for, or mend the robot's description."
        )


def asked_of(bundle: Bundle) -> tuple[Segment, ...]:
    """What the bundle is shown of its task, by the topic 'goal': neither positions nor velocities of
    joints.
    """
    unit = bundle.env.obs["state"].unit if "state" in bundle.env.obs else ""
    return tuple(segment for segment in parse_unit(unit) if segment.unit not in (POSITION, VELOCITY))


def goal_names(bundle: Bundle) -> tuple[str, ...]:
    """One name for each number of the topic 'goal' that the bundle is shown."""
    return tuple(name for segment in asked_of(bundle) for name in segment.names)


def check_goal(bundle: Bundle, told: int, by: str) -> None:
    """Raise CheckpointError for a goal of another size than the bundle is shown. by: who tells these
    numbers.
    """
    names = goal_names(bundle)
    if len(names) != told:
        unit = "; ".join(f"{segment.unit}: {', '.join(segment.names)}" for segment in asked_of(bundle))
        shown = f"{len(names)} numbers of its task ({unit})" if names else "nothing of its task"
        raise CheckpointError(
            f"The bundle '{bundle.name}' is shown {shown}, and {by} tells {told}. Tell as many as it is "
            "shown, in its order, or use a bundle that was trained on this task."
        )


def mismatches(bundle: Bundle, robot: RobotDescription) -> Iterator[str]:
    """One sentence each: joint names, limits, rates, cameras."""
    joints = action_joints(bundle.env.action.unit)
    if len(joints) != bundle.env.action.dim:
        yield (
            f"It commands '{bundle.env.action.unit or 'numbers without a unit'}' ({bundle.env.name}), and an "
            "arm takes named joint positions, 'rad: <joint>, ...'."
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
        yield f"It commands the joints {', '.join(missing)}, which the robot does not have ({', '.join(robot.names)})."
    if left := [name for name in robot.names if name not in joints]:
        yield f"It does not command the joints {', '.join(left)}."


def _limits(bundle: Bundle, joints: tuple[str, ...], robot: RobotDescription) -> Iterator[str]:
    """A policy may be asked for less than the robot can do, not for more."""
    rows = {joint.name: joint for joint in robot.joints}
    for name, low, high in zip(joints, bundle.env.action.low, bundle.env.action.high, strict=True):
        joint = rows[name]
        if low < joint.low_rad - _SLACK_RAD or high > joint.high_rad + _SLACK_RAD:
            yield (
                f"Joint {name} is commanded from {low:.3g} to {high:.3g} rad, the robot's goes from "
                f"{joint.low_rad:.3g} to {joint.high_rad:.3g}."
            )


def _rates(bundle: Bundle, robot: RobotDescription) -> Iterator[str]:
    named = {"control": bundle.env.control_hz, **bundle.manifest["rates_hz"]}
    unusable = {
        name: hz for name, hz in named.items() if not 0.0 < float(hz) < math.inf
    }  # NaN is refused, too
    if unusable:
        shown = ", ".join(f"{name} {hz:g} Hz" for name, hz in unusable.items())
        yield f"Its manifest holds rates that no robot has: {shown}; expected finite positive numbers."
        return
    if bundle.env.control_hz > robot.command_hz * (1.0 + _SLACK):
        yield f"It acts at {bundle.env.control_hz:g} Hz, the robot takes commands at {robot.command_hz:g} Hz."
    needed = float(bundle.manifest["rates_hz"].get("state", 0.0))
    if needed > robot.state_hz * (1.0 + _SLACK):
        yield f"It is shown states at {needed:g} Hz, the robot tells them at {robot.state_hz:g} Hz."


def _state(bundle: Bundle, robot: RobotDescription) -> Iterator[str]:
    """The joints that it is shown."""
    if "state" not in bundle.env.obs:
        return
    segments = parse_unit(bundle.env.obs["state"].unit)
    if not segments:
        yield "It does not name the parts of its observation 'state', so a robot cannot tell which number is which."
    shown = {name for s in segments if s.unit in (POSITION, VELOCITY) for name in s.names}
    if unknown := sorted(shown - set(robot.names)):
        yield f"It is shown the joints {', '.join(unknown)}, which the robot does not have."


def _cameras(bundle: Bundle, robot: RobotDescription) -> Iterator[str]:
    if unknown := [key for key in bundle.env.obs if key != "state" and not key.startswith((IMAGE, DEPTH))]:
        yield untold(unknown)
    for key, spec in bundle.env.obs.items():
        if not key.startswith((IMAGE, DEPTH)):
            continue
        name = key.partition(".")[2]
        camera = robot.cameras.get(name)
        if camera is None:
            yield f"It needs the camera '{name}', the robot has {', '.join(robot.cameras) or 'none'}."
            continue
        height, width = spec.shape[:2]
        if not scalable((camera.height_px, camera.width_px), (height, width)):
            yield (
                f"Its camera '{name}' gives {width} x {height} pictures, the robot's {camera.width_px} x "
                f"{camera.height_px}, of which these are not a smaller version."
            )
        needed = float(bundle.manifest["rates_hz"].get(key, 0.0))
        if needed > camera.rate_hz * (1.0 + _SLACK):
            yield f"Its camera '{name}' runs at {needed:g} Hz, the robot's at {camera.rate_hz:g} Hz."
