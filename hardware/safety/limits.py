"""The next position that an arm may be sent: pure functions, one command at a time.

`next_move` receives the position and speed sent last, the measured position, the target and the time since
the last command, and returns what is sent. Per joint, with p the position sent last, u the speed it was sent
at, m the measured position, dt the time since, v is (target - p) / dt, limited in this order to:

    1. the speed that still stops at the target
    2. the speeds that lead to m -+ step
    3. the speeds that still stop at the ends of the range
    4. u -+ a dt, then -+ vmax
    q = p + v dt

The last limits win: whatever was measured or commanded, q is no further from p than vmax dt, and no speed
differs from the one before by more than a dt. The speed that still stops after a distance d, moving one more
step first, solves v dt + v^2 / (2 a) = d. A speed limited so in one step can be limited so in the next, so
range and acceleration never conflict. An arm that wakes up outside its range walks back, it does not jump.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.safety.reasons import Reason
from hardware.safety.workspace import Workspace
from robo_rl.core.shapes import Bool, Float

Joints = Float[ndarray, " j"]


@dataclass(frozen=True, slots=True)
class ArmLimits:
    """Limits of every joint (j,), as arrays."""

    low_rad: Joints
    high_rad: Joints
    velocity_rad_s: Joints
    acceleration_rad_s2: Joints
    step_rad: Joints

    @classmethod
    def of(cls, robot: RobotDescription) -> ArmLimits:
        low, high = robot.column("low_rad"), robot.column("high_rad")
        return cls(
            low, high, robot.column("velocity_rad_s"), robot.column("acceleration_rad_s2"), robot.step_rad
        )


@dataclass(frozen=True, slots=True)
class Target:
    """Target position. speed_rad_s: speed at which the target itself moves, 0 where that is not known.

    followed: joints with a target; the others brake. None: all have one.
    """

    position_rad: Joints
    speed_rad_s: Joints
    followed: Bool[ndarray, " j"] | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One command: position and speed, and the limits that changed it in any joint."""

    position_rad: Joints
    speed_rad_s: Joints
    limited_by: tuple[Reason, ...] = ()


# Shares of the way to rest at which the workspace is checked; the last two are close, to see where the path
# leads.
_SHARES = np.array([*np.linspace(0.125, 0.875, 7), 0.99, 1.0])[:, None]
_FELT_RAD = 1e-6  # a change below this is rounding, not a limit


def next_move(
    last: Move, measured_rad: Joints, target: Target | None, dt_s: float, limits: ArmLimits,
    workspace: Workspace | None,
) -> Move:  # fmt: skip
    """Move to send: a step towards the target, or a braking one without a target, within every limit.

    last: the move sent last. dt_s: time since then. Every position that the filter sends is made here.
    """
    if target is None:
        move = braking(last, measured_rad, dt_s, limits)
    else:
        move = towards(target, last, measured_rad, dt_s, limits)
    return move if workspace is None else _inside_workspace(move, last, target, dt_s, limits, workspace)


def stopping_speed(
    distance_rad: Float[ndarray, "*n j"], acceleration_rad_s2: Joints, dt_s: float
) -> Float[ndarray, "*n j"]:
    """The speed that still stops after `distance_rad`: v dt + v^2 / (2 a) = d; 0 for a distance below 0."""
    ahead = np.maximum(distance_rad, 0.0)
    speed: Float[ndarray, "*n j"] = acceleration_rad_s2 * (
        np.sqrt(dt_s * dt_s + 2.0 * ahead / acceleration_rad_s2) - dt_s
    )
    return speed


def towards(target: Target, last: Move, measured_rad: Joints, dt_s: float, limits: ArmLimits) -> Move:
    """The step towards a target, which may itself be moving; joints without a target brake."""
    if target.followed is not None:
        target = _with_braking(target, target.followed, last, dt_s, limits)
    goal = np.minimum(np.maximum(target.position_rad, limits.low_rad), limits.high_rad)
    way = goal - last.position_rad
    wanted = way / dt_s
    near = stopping_speed(np.abs(way), limits.acceleration_rad_s2, dt_s)
    # A moving target needs no braking for; at one that stands still, the arm arrives at rest.
    arriving = np.minimum(np.maximum(wanted, target.speed_rad_s - near), target.speed_rad_s + near)
    if target.followed is not None:
        arriving = np.where(target.followed, arriving, target.speed_rad_s)
    move = _limited(arriving, last, measured_rad, dt_s, limits)
    change = limits.acceleration_rad_s2 * dt_s
    eased = np.minimum(np.maximum(arriving, last.speed_rad_s - change), last.speed_rad_s + change)
    felt = _FELT_RAD / dt_s
    reasons = {
        Reason.POSITION: _differs(goal, target.position_rad),
        Reason.VELOCITY: bool((np.abs(wanted) > limits.velocity_rad_s + felt).any()),
        Reason.ACCELERATION: _largest(eased - wanted) > felt,  # or by what still stops at the target
    }
    return replace(
        move, limited_by=(*(reason for reason, limited in reasons.items() if limited), *move.limited_by)
    )


def _with_braking(
    target: Target, followed: Bool[ndarray, " j"], last: Move, dt_s: float, limits: ArmLimits
) -> Target:
    """The target, with the next place on the way to rest for joints that have none."""
    slower = _slower(last, dt_s, limits)
    place = np.where(followed, target.position_rad, last.position_rad + slower * dt_s)
    return replace(target, position_rad=place, speed_rad_s=np.where(followed, target.speed_rad_s, slower))


def _slower(last: Move, dt_s: float, limits: ArmLimits) -> Joints:
    """Speeds of joints that brake as fast as they may."""
    left = np.maximum(np.abs(last.speed_rad_s) - limits.acceleration_rad_s2 * dt_s, 0.0)
    slower: Joints = np.sign(last.speed_rad_s) * left
    return slower


def braking(last: Move, measured_rad: Joints | None, dt_s: float, limits: ArmLimits) -> Move:
    """The step that slows every joint down as fast as it may.

    A joint at rest stays where it was sent, or comes back to within a step of `measured_rad` where that is
    given.
    """
    return _limited(_slower(last, dt_s, limits), last, measured_rad, dt_s, limits)


def stopping_line(move: Move, limits: ArmLimits) -> Float[ndarray, "n j"]:
    """Positions on the way of `braking_straight` from `move` to rest, for any times between commands."""
    longest_s = 0.5 * _largest(move.speed_rad_s / limits.acceleration_rad_s2)
    line: Float[ndarray, "n j"] = move.position_rad + _SHARES * longest_s * move.speed_rad_s
    return line


def braking_straight(last: Move, dt_s: float, limits: ArmLimits) -> Move:
    """Step of braking along a straight line: one factor for all joints, set by the one that needs longest."""
    longest_s = _largest(last.speed_rad_s / limits.acceleration_rad_s2)
    kept = 0.0 if longest_s <= dt_s else 1.0 - dt_s / longest_s
    return _limited(kept * last.speed_rad_s, last, None, dt_s, limits)


def _inside_workspace(
    move: Move, last: Move, target: Target | None, dt_s: float, limits: ArmLimits, workspace: Workspace
) -> Move:
    """The step if the arm can brake after it without leaving the workspace or its range; else a braking one.

    What was sent last had passed the same test, so that braking from it stays inside.
    """
    line = stopping_line(move, limits)
    above, below = (
        np.maximum(limits.high_rad, last.position_rad),
        np.minimum(limits.low_rad, last.position_rad),
    )
    in_range = ((line[-1] <= above) & (line[-1] >= below)).all()
    if in_range and workspace.allows(move.position_rad, line, last.position_rad):
        return move
    limited_by = move.limited_by if target is None else (*move.limited_by, Reason.WORKSPACE)
    return replace(braking_straight(last, dt_s, limits), limited_by=limited_by)


def _limited(
    speed_rad_s: Joints, last: Move, measured_rad: Joints | None, dt_s: float, limits: ArmLimits
) -> Move:
    """Step from the measured position, then range, then acceleration and speed: the last ones win."""
    sent_rad, before = last.position_rad, last.speed_rad_s
    near = speed_rad_s
    if measured_rad is not None:
        low, high = measured_rad - limits.step_rad, measured_rad + limits.step_rad
        near = np.minimum(np.maximum(near, (low - sent_rad) / dt_s), (high - sent_rad) / dt_s)
    rooms = np.array((limits.high_rad - sent_rad, sent_rad - limits.low_rad))
    up, down = stopping_speed(rooms, limits.acceleration_rad_s2, dt_s)
    ranged = np.minimum(np.maximum(near, -down), up)
    change = limits.acceleration_rad_s2 * dt_s
    eased = np.minimum(np.maximum(ranged, before - change), before + change)
    speed = np.minimum(np.maximum(eased, -limits.velocity_rad_s), limits.velocity_rad_s)
    pulled = _largest(near - speed_rad_s) * dt_s > _FELT_RAD
    return Move(sent_rad + speed * dt_s, speed, (Reason.STEP,) if pulled else ())


def _differs(kept: Joints, wanted: Joints) -> bool:
    """True when any joint differs by more than rounding."""
    return _largest(kept - wanted) > _FELT_RAD


def _largest(values: Joints) -> float:
    """The largest magnitude; through a list, because NumPy's own takes twice as long for so few numbers."""
    most: float = max(np.abs(values).tolist())
    return most
