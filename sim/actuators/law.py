"""Models between a position servo and its joint, as pure functions.

    lag        u' = c + (u - c) exp(-h / tau)                 target that the servo follows, c: the command
    backlash   x = clip(q, u - b / 2, u + b / 2)              no torque while the joint is within the play
    motor      -F <= S (-1 - v / v0) <= torque <= S (1 - v / v0) <= F         S = stall F

Lag: the first-order filter of MuJoCo's `dyntype="filterexact"`, exact over a step with constant c. Backlash:
the dead-zone model in Nordin and Gutman, "Controlling mechanical systems with backlash: a survey"
(Automatica, 2002), applied to the servo's stiffness but not to its damping. Motor: `DCMotor` of Isaac Lab
(isaaclab.actuators), where F is the effort limit, S the saturation effort and v0 the velocity limit: back-EMF
reduces the torque as the joint speeds up, and brakes a joint that is driven faster than v0. Hwangbo et al.,
"Learning agile and dynamic motor skills for legged robots" (Science Robotics, 2019), show that policies need
such models to transfer to robots.

Arrays of any one shape, one number per servo; radians and newton-metres at a hinge, metres and newtons at a
slide.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Bool, Float

Servos = Float[ndarray, "*n nu"]


def lag_share(lag_s: Servos, step_s: float) -> Servos:
    """Share exp(-h / tau) of a lag that remains after a step; 0 without lag."""
    with np.errstate(divide="ignore"):
        share: Servos = np.exp(-step_s / lag_s)
    return share


def lagged(reached: Servos, command: Servos, kept: Servos) -> Servos:
    """Target of the servo one step later; exactly the command where `lag_share` is 0."""
    later: Servos = command + (reached - command) * kept
    return later


def within_play(target: Servos, position: Servos, backlash: Servos) -> Servos:
    """Joint position that the servo's stiffness sees through the play; exactly `target` without play."""
    half = 0.5 * backlash
    pulled: Servos = np.minimum(np.maximum(position, target - half), target + half)
    return pulled


class Line(NamedTuple):
    """Torque-speed line: where `curved`, the torque is push - slope v instead of the servo's; limits -F to F
    hold for both.
    """

    curved: Bool[ndarray, "*n nu"]
    push: Servos  # the stall torque, of the sign that is asked for
    slope: Servos  # steep in slow motors: an engine that treats it as damping, implicitly, stays stable


def motor_line(
    torque: Servos, speed: Servos, low: Servos, high: Servos, no_load: Servos, stall: Servos
) -> Line:
    """Torque that a motor has left at this speed.

    low <= 0 <= high: its limits at rest; no_load: the speed v0, inf without a curve.
    """
    with np.errstate(invalid="ignore"):  # no limit and no curve: inf / inf, which compares as false
        most, least = stall * high, stall * low
        over = torque > most * (1.0 - speed / no_load)
        under = torque < least * (1.0 + speed / no_load)
        push = np.where(over, most, least)
        return Line((over | under) & np.isfinite(no_load), push, np.abs(push) / no_load)
