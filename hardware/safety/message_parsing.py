"""Parsing of messages before a filter uses them: complete, finite, for this robot, in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.messages import JointState, JointTrajectory
from hardware.safety.reasons import Reason
from robo_rl.core.shapes import Float

Joints = Float[ndarray, " j"]


class StampOrder:
    """Accepts the messages of one sender whose stamps grow: none twice, and none before an accepted one.

    Messages of stamp 0 ("now") are accepted in the order of receipt, from a sender that never stamped one.
    """

    def __init__(self) -> None:
        self._last_s: float | None = None

    def forget(self) -> None:
        """Accept any first message again."""
        self._last_s = None

    def check(self, stamp_s: float) -> Reason | None:
        """Why the message is late, or None. Does not accept it."""
        if not math.isfinite(stamp_s):
            return Reason.NOT_FINITE
        if self._last_s is None or stamp_s > self._last_s or stamp_s == self._last_s == 0.0:
            return None
        return Reason.OUT_OF_ORDER

    def take(self, stamp_s: float) -> None:
        """Accept the message."""
        self._last_s = stamp_s


@dataclass(frozen=True, slots=True)
class Measured:
    """An accepted state. received_s: local monotonic time."""

    position_rad: Joints
    received_s: float


def read_command(message: JointTrajectory, names: Sequence[str]) -> Joints | Reason:
    """The one waypoint of a command, in the order of `names`, or the reason why it is dropped."""
    try:
        position: Joints = np.asarray(message.position_rad, dtype=np.float64)
        times = np.asarray(message.times_s, dtype=np.float64)
    except (TypeError, ValueError):
        return Reason.WRONG_SHAPE
    if position.shape != (1, len(names)) or times.shape != (1,):
        return Reason.WRONG_SHAPE
    first: Joints = position[0].copy()
    if not (_finite(first) and math.isfinite(times[0])):
        return Reason.NOT_FINITE
    if tuple(message.names) == tuple(names):
        return first
    if sorted(message.names) != sorted(names):
        return Reason.WRONG_JOINTS
    ordered: Joints = first[[message.names.index(name) for name in names]]
    return ordered


def is_hold_request(message: JointTrajectory) -> bool:
    """True for a trajectory without waypoints, by which a sender asks for a hold at once."""
    return np.shape(message.position_rad)[:1] == (0,) and np.shape(message.times_s) == (0,)


def read_state(message: JointState, names: Sequence[str]) -> Joints | None:
    """Measured positions in the order of `names`; None when one is missing or not finite.

    Other joints are ignored.
    """
    try:
        position = np.asarray(message.position_rad, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if position.shape != (len(message.names),):
        return None
    if tuple(message.names) != tuple(names):
        places = {name: i for i, name in enumerate(message.names)}
        if len(places) != len(message.names) or any(name not in places for name in names):
            return None
        position = position[[places[name] for name in names]]
    return position.copy() if _finite(position) else None


def _finite(values: Joints) -> bool:
    """True when all values are finite; by a list, because NumPy takes twice as long for so few."""
    return all(map(math.isfinite, values.tolist()))


def state_fault(message: JointState, robot: RobotDescription) -> str:
    """Fault of a dropped state, and what to check."""
    if missing := [name for name in robot.names if name not in message.names]:
        named = ", ".join(message.names) or "none"
        return f"joint_states lacks {', '.join(missing)} of the robot's description; it has {named}"
    if len(set(message.names)) != len(message.names):
        return "joint_states names a joint twice"
    position = read_state(message, robot.names)
    if position is None:
        return "joint_states holds a position that is not a finite number, or not one for each name"
    beyond = [max(j.low_rad - at, at - j.high_rad) for j, at in zip(robot.joints, position, strict=True)]
    worst = int(np.argmax(beyond))
    joint = robot.joints[worst]
    return (
        f"joint_states has {joint.name} at {position[worst]:.3g} rad, far outside of {joint.low_rad:.3g} "
        f"to {joint.high_rad:.3g}: its counter lost its zero, or the robot's description has another range"
    )
