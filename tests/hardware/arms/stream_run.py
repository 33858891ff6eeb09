"""One joint at 1 rad/s, commanded in several ways through the model of the trajectory controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hardware.arms.bounds import JointLimits
from hardware.arms.waypoint_stream import WaypointStream
from hardware.messages import JointTrajectory
from tests.hardware.arms.jtc_model import Controller, MockServo, Servo

PERIOD_S, LAG_S, SPEED_RAD_S, SECONDS = 0.02, 0.048, 1.0, 1.2
LIMITS = JointLimits((-10.0,), (10.0,), (2.0,))
Way = Callable[[float, float, float], JointTrajectory]  # (target, measured, time) -> message


@dataclass(frozen=True)
class Motion:
    """jump_mrad: largest change of the command at a message beyond what a period of the controller moves it.

    behind_ms: how long after its target the command is there.
    """

    jump_mrad: float
    behind_ms: float


def single(periods: float) -> Way:
    """One waypoint without velocities, this many periods ahead."""
    times_s = np.array([periods * PERIOD_S])
    return lambda target, measured, now_s: JointTrajectory(0.0, ("a",), np.array([[target]]), times_s)


def stream(joins: bool) -> Way:
    """The driver's waypoints."""
    made = WaypointStream(PERIOD_S, LIMITS, joins)

    def way(target: float, measured: float, now_s: float) -> JointTrajectory:
        points = made.next(np.array([target]), np.array([measured]), now_s)
        return JointTrajectory(
            0.0, ("a",), points.position_rad, points.times_s, velocity_rad_s=points.velocity_rad_s
        )

    return way


def moved(way: Way, from_desired: bool, jitter_s: float = 0.0, seed: int = 0, mock: bool = False) -> Motion:
    """One second at constant speed, after 0.2 s. jitter_s: largest message delay, drawn uniformly.

    mock: states are at a constant distance behind the commands, that of a servo with the lag at this speed.
    """
    servo = MockServo(SPEED_RAD_S * LAG_S) if mock else Servo(LAG_S)
    rng, controller = np.random.default_rng(seed), Controller(servo, from_desired)
    step_s = 1.0 / controller.update_hz
    arrivals: list[tuple[float, JointTrajectory]] = []
    sent, jumps, behind = 0, [0.0], [0.0]
    for i in range(round(SECONDS / step_s)):
        now_s = i * step_s
        if now_s >= sent * PERIOD_S - 1e-9:
            target = SPEED_RAD_S * now_s
            arrivals.append((now_s + jitter_s * rng.random(), way(target, controller.servo.place_rad, now_s)))
            sent += 1
        taken = False
        while arrivals and arrivals[0][0] <= now_s + 1e-9:
            controller.take(arrivals.pop(0)[1])
            taken = True
        before = controller.commands[-1] if controller.commands else 0.0
        command = controller.update(now_s)
        if now_s > 0.2:
            behind.append(1e3 * (now_s - command / SPEED_RAD_S))
            if taken:
                jumps.append(1e3 * abs(command - before))
    return Motion(max(jumps), float(np.mean(behind[1:])))
