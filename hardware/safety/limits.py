"""The next position that an arm may be sent: pure functions, one command at a time.

`next_move` receives the position and speed sent last, the measured position, the target and the time since
the last command, and returns what is sent. Per joint, with p the position sent last, u the speed it was sent
at, m the measured position, dt the time since:

    v = (target - p) / dt, limited to: the speed that still stops at the target; u -+ a dt; -+ vmax;
        the speed that still stops at the end of the range
    q = p + v dt, limited to m -+ step

The range is applied first and the step last: an arm that wakes up outside its range walks back, it does not
jump. The speed that still stops after a distance d, moving one more step first, solves
v dt + v^2 / (2 a) = d. A speed limited so in one step can be limited so in the next, so range and
acceleration never conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.safety.reasons import Reason
from hardware.safety.workspace import Workspace

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
    """Where to go. speed_rad_s: speed at which the target itself moves, 0 where that is not known."""

    position_rad: Joints
    speed_rad_s: Joints


@dataclass(frozen=True, slots=True)
class Move:
    """One command: position and speed, and the limits that changed it in any joint."""

    position_rad: Joints
    speed_rad_s: Joints
    limited_by: tuple[Reason, ...] = ()


_FELT_RAD = 1e-6  # a change below this is rounding, not a limit


def next_move(
    last: Move, measured_rad: Joints, target: Target | None, dt_s: float, limits: ArmLimits,
    workspace: Workspace | None,
) -> Move:  # fmt: skip
    """What is sent: a step towards the target, or a braking one without a target, inside every limit.

    last: what was sent last. dt_s: time since then. Every position that the filter sends is made here, or by
    `frozen` when the program ends without time to brake.
    """
    if target is None:
        move = braking(last, measured_rad, dt_s, limits)
    else:
        move = towards(target, last, measured_rad, dt_s, limits)
    return move if workspace is None else _fenced(move, last, measured_rad, target, dt_s, limits, workspace)


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
    """The step towards a target, which may itself be moving."""
    sent_rad, speed_rad_s = last.position_rad, last.speed_rad_s
    goal = np.minimum(np.maximum(target.position_rad, limits.low_rad), limits.high_rad)
    way = goal - sent_rad
    wanted = way / dt_s
    rooms = np.array((np.abs(way), limits.high_rad - sent_rad, sent_rad - limits.low_rad))
    near, up, down = stopping_speed(rooms, limits.acceleration_rad_s2, dt_s)
    # A moving target needs no braking for; at one that stands still, the arm arrives at rest.
    arriving = np.minimum(np.maximum(wanted, target.speed_rad_s - near), target.speed_rad_s + near)
    change = limits.acceleration_rad_s2 * dt_s
    eased = np.minimum(np.maximum(arriving, speed_rad_s - change), speed_rad_s + change)
    slowed = np.minimum(np.maximum(eased, -limits.velocity_rad_s), limits.velocity_rad_s)
    felt = _FELT_RAD / dt_s
    held_back = _largest(slowed - wanted) > felt  # by the velocity or the acceleration limit
    reasons = {
        Reason.POSITION: _differs(goal, target.position_rad),
        Reason.VELOCITY: held_back and bool((np.abs(wanted) > limits.velocity_rad_s + felt).any()),
        Reason.ACCELERATION: held_back and bool((np.abs(eased - wanted) > felt).any()),
    }
    limited_by = tuple(reason for reason, limited in reasons.items() if limited)
    return _within(slowed, down, up, last, measured_rad, dt_s, limits, limited_by)


def braking(last: Move, measured_rad: Joints, dt_s: float, limits: ArmLimits) -> Move:
    """The step that slows every joint down as fast as it may; a joint at rest stays where it was sent."""
    sent_rad, speed_rad_s = last.position_rad, last.speed_rad_s
    left = np.maximum(np.abs(speed_rad_s) - limits.acceleration_rad_s2 * dt_s, 0.0)
    rooms = np.array((limits.high_rad - sent_rad, sent_rad - limits.low_rad))
    up, down = stopping_speed(rooms, limits.acceleration_rad_s2, dt_s)
    return _within(np.sign(speed_rad_s) * left, down, up, last, measured_rad, dt_s, limits)


def frozen(last: Move, measured_rad: Joints, limits: ArmLimits) -> Move:
    """Stop within one step, whatever the deceleration: the last resort."""
    position, pulled = _step(last.position_rad, measured_rad, limits)
    return Move(position, np.zeros_like(position), (Reason.STEP,) if pulled else ())


def resting_place(move: Move, limits: ArmLimits) -> Joints:
    """Where the arm comes to rest when it brakes after this step."""
    speed = move.speed_rad_s
    place: Joints = move.position_rad + 0.5 * speed * np.abs(speed) / limits.acceleration_rad_s2
    return place


def _fenced(
    move: Move, last: Move, measured_rad: Joints, target: Target | None, dt_s: float, limits: ArmLimits,
    workspace: Workspace,
) -> Move:  # fmt: skip
    """The step if it stays in the workspace; else a braking one; else, if that leads out too, a stop."""
    sent_m = workspace.excess_m(last.position_rad)
    if workspace.allows(move.position_rad, resting_place(move, limits), sent_m):
        return move
    limited_by = move.limited_by if target is None else (*move.limited_by, Reason.WORKSPACE)
    kept = braking(last, measured_rad, dt_s, limits)
    if workspace.excess_m(kept.position_rad) > sent_m:
        kept = frozen(last, measured_rad, limits)
    return replace(kept, limited_by=limited_by)


def _within(
    speed_rad_s: Joints, down_rad_s: Joints, up_rad_s: Joints, last: Move, measured_rad: Joints, dt_s: float,
    limits: ArmLimits, limited_by: tuple[Reason, ...] = (),
) -> Move:  # fmt: skip
    """Keep the range, by the speeds that still stop at its ends, then the step from the measured position."""
    speed = np.minimum(np.maximum(speed_rad_s, -down_rad_s), up_rad_s)
    position, pulled = _step(last.position_rad + speed * dt_s, measured_rad, limits)
    if not pulled:
        return Move(position, speed, limited_by)
    most = limits.velocity_rad_s
    speed = np.minimum(np.maximum((position - last.position_rad) / dt_s, -most), most)
    return Move(position, speed, (*limited_by, Reason.STEP))


def _step(position_rad: Joints, measured_rad: Joints, limits: ArmLimits) -> tuple[Joints, bool]:
    """The position within one step of the measured one, and whether that changed it."""
    low, high = measured_rad - limits.step_rad, measured_rad + limits.step_rad
    kept = np.minimum(np.maximum(position_rad, low), high)
    return kept, _differs(kept, position_rad)


def _differs(kept: Joints, wanted: Joints) -> bool:
    """True when any joint differs by more than rounding."""
    return _largest(kept - wanted) > _FELT_RAD


def _largest(values: Joints) -> float:
    """The largest magnitude; through a list, because NumPy's own takes twice as long for so few numbers."""
    most: float = max(np.abs(values).tolist())
    return most
