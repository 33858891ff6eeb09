"""The next position that an arm may be sent: pure functions, one tick at a time.

Per joint, with p the position sent last, u the speed it was sent at, m the measured position, dt the time
since:

    v = (goal - p) / dt, within what still stops at the goal, u -+ a dt, -+ vmax, what still stops at the
    range's end q = p + v dt, within m -+ step

Clip first, step-limit last: an arm that wakes up outside its range walks back, it never jumps. The speed that
still stops after a distance d, moving one more step first, solves v dt + v^2 / (2 a) = d; kept so in every
step it can be kept in the next one, so that range and acceleration never contradict each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.description import RobotDescription

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
class Move:
    """One step: where to, how fast, and which limits were felt in any joint."""

    position_rad: Joints
    speed_rad_s: Joints
    clipped: bool = False  # by the range
    slowed: bool = False  # by the velocity limit
    eased: bool = False  # by the acceleration limit
    pulled: bool = False  # by the step from the measured position


_FELT_RAD = 1e-6  # a change below this is rounding, not a limit


def stopping_speed(
    distance_rad: Float[ndarray, "*n j"], acceleration_rad_s2: Joints, dt_s: float
) -> Float[ndarray, "*n j"]:
    """The speed that still stops after `distance_rad`: v dt + v^2 / (2 a) = d; 0 for a distance below 0."""
    ahead = np.maximum(distance_rad, 0.0)
    speed: Float[ndarray, "*n j"] = acceleration_rad_s2 * (
        np.sqrt(dt_s * dt_s + 2.0 * ahead / acceleration_rad_s2) - dt_s
    )
    return speed


def towards(
    goal_rad: Joints, goal_speed_rad_s: Joints, sent_rad: Joints, speed_rad_s: Joints, measured_rad: Joints,
    dt_s: float, limits: ArmLimits,
) -> Move:  # fmt: skip
    """The step towards a goal that itself moves at `goal_speed_rad_s` (0 where that is not known)."""
    goal = np.minimum(np.maximum(goal_rad, limits.low_rad), limits.high_rad)
    way = goal - sent_rad
    wanted = way / dt_s
    rooms = np.array((np.abs(way), limits.high_rad - sent_rad, sent_rad - limits.low_rad))
    near, up, down = stopping_speed(rooms, limits.acceleration_rad_s2, dt_s)
    # A goal that goes on moving needs no braking for; at one that stands, the arm arrives at rest.
    calm = np.minimum(np.maximum(wanted, goal_speed_rad_s - near), goal_speed_rad_s + near)
    change = limits.acceleration_rad_s2 * dt_s
    eased = np.minimum(np.maximum(calm, speed_rad_s - change), speed_rad_s + change)
    slowed = np.minimum(np.maximum(eased, -limits.velocity_rad_s), limits.velocity_rad_s)
    felt = _FELT_RAD / dt_s
    free = not _largest(slowed - wanted) > felt  # then neither velocity nor acceleration held it back
    return _within(
        slowed, down, up, sent_rad, measured_rad, dt_s, limits,
        clipped=_differs(goal, goal_rad),
        slowed=not free and bool((np.abs(wanted) > limits.velocity_rad_s + felt).any()),
        eased=not free and bool((np.abs(eased - wanted) > felt).any()),
    )  # fmt: skip


def braking(
    sent_rad: Joints, speed_rad_s: Joints, measured_rad: Joints, dt_s: float, limits: ArmLimits
) -> Move:
    """The step that slows every joint down as fast as it may; a joint at rest stays where it was sent."""
    left = np.maximum(np.abs(speed_rad_s) - limits.acceleration_rad_s2 * dt_s, 0.0)
    rooms = np.array((limits.high_rad - sent_rad, sent_rad - limits.low_rad))
    up, down = stopping_speed(rooms, limits.acceleration_rad_s2, dt_s)
    return _within(np.sign(speed_rad_s) * left, down, up, sent_rad, measured_rad, dt_s, limits)


def frozen(sent_rad: Joints, measured_rad: Joints, limits: ArmLimits) -> Move:
    """Stop within one step, whatever the deceleration: the last resort."""
    position, pulled = _step(sent_rad, measured_rad, limits)
    return Move(position, np.zeros_like(sent_rad), pulled=pulled)


def resting_place(move: Move, limits: ArmLimits) -> Joints:
    """Where the arm comes to rest when it brakes after this step."""
    speed = move.speed_rad_s
    place: Joints = move.position_rad + 0.5 * speed * np.abs(speed) / limits.acceleration_rad_s2
    return place


def _within(
    speed_rad_s: Joints, down_rad_s: Joints, up_rad_s: Joints, sent_rad: Joints, measured_rad: Joints, dt_s: float,
    limits: ArmLimits, clipped: bool = False, slowed: bool = False, eased: bool = False,
) -> Move:  # fmt: skip
    """Keep the range, by the speeds that still stop at its ends, then the step from the measured position."""
    speed = np.minimum(np.maximum(speed_rad_s, -down_rad_s), up_rad_s)
    position, pulled = _step(sent_rad + speed * dt_s, measured_rad, limits)
    if pulled:
        most = limits.velocity_rad_s
        speed = np.minimum(np.maximum((position - sent_rad) / dt_s, -most), most)
    return Move(position, speed, clipped, slowed, eased, pulled)


def _step(position_rad: Joints, measured_rad: Joints, limits: ArmLimits) -> tuple[Joints, bool]:
    low, high = measured_rad - limits.step_rad, measured_rad + limits.step_rad
    kept = np.minimum(np.maximum(position_rad, low), high)
    return kept, _differs(kept, position_rad)


def _differs(kept: Joints, wanted: Joints) -> bool:
    """By more than rounding, in any joint."""
    return _largest(kept - wanted) > _FELT_RAD


def _largest(values: Joints) -> float:
    """The largest magnitude; through a list, because NumPy's own takes twice as long for so few numbers."""
    most: float = max(np.abs(values).tolist())
    return most
