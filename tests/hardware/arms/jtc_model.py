"""A model of ros2_controllers' joint_trajectory_controller in front of servos that lag behind, for one joint.

From its documentation (ros2_controllers, "Trajectory Representation" and "Parameters"): a message replaces
the trajectory; until its first waypoint the controller interpolates from a start, which is the measured
state, or with
`interpolate_from_desired_state` (or `open_loop_control`) the state that it commands; a message of stamp 0
begins at the update that takes it; between two waypoints with positions alone it interpolates linearly, with
velocities by a cubic, with accelerations, too, by a quintic; after the last one it holds.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from hardware.messages import JointTrajectory

State = tuple[float, float | None, float | None]  # position, velocity, acceleration


@dataclass
class Servo:
    """Follows a command with a first-order lag."""

    lag_s: float
    place_rad: float = 0.0
    speed_rad_s: float = 0.0

    def advance(self, command_rad: float, dt_s: float) -> None:
        before_rad = self.place_rad
        self.place_rad += (command_rad - self.place_rad) * (1.0 - np.exp(-dt_s / self.lag_s))
        self.speed_rad_s = (self.place_rad - before_rad) / dt_s


@dataclass
class MockServo:
    """Is `behind_rad` behind each command at once, as mock_components/GenericSystem with an offset."""

    behind_rad: float
    place_rad: float = 0.0
    speed_rad_s: float = 0.0

    def advance(self, command_rad: float, dt_s: float) -> None:
        before_rad, self.place_rad = self.place_rad, command_rad - self.behind_rad
        self.speed_rad_s = (self.place_rad - before_rad) / dt_s


@dataclass
class Controller:
    """update_hz: of the controller manager. commands: what was commanded at each update [rad]."""

    servo: Servo | MockServo
    from_desired: bool
    update_hz: float = 1000.0
    commands: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start: tuple[float, State] | None = None
        self._begin_s = 0.0
        self._points: list[tuple[float, State]] = []
        self._desired: State = (self.servo.place_rad, 0.0, 0.0)
        self._new: JointTrajectory | None = None

    def take(self, message: JointTrajectory) -> None:
        """Receive a message; the next update uses it if it is valid."""
        assert message.stamp_s == 0.0
        assert (np.diff(message.times_s) > 0.0).all(), "time between points is not strictly increasing"
        velocity = message.velocity_rad_s
        assert velocity.size == 0 or velocity[-1, 0] == 0.0, "velocity of the last waypoint is not zero"
        self._new = message

    def update(self, now_s: float) -> float:
        """One cycle; returns the command."""
        if self._new is not None:
            start = (
                self._desired if self.from_desired else (self.servo.place_rad, self.servo.speed_rad_s, None)
            )
            self._start, self._begin_s = (now_s, start), now_s
            self._points = [_point(self._new, i) for i in range(len(self._new.times_s))]
            self._new = None
        self._desired = self._sample(now_s)
        self.commands.append(self._desired[0])
        self.servo.advance(self._desired[0], 1.0 / self.update_hz)
        return self._desired[0]

    def _sample(self, now_s: float) -> State:
        if self._start is None:
            return self._desired
        stages = [self._start, *((self._begin_s + time_s, state) for time_s, state in self._points)]
        if now_s >= stages[1][0]:
            stages = stages[1:]
        for (begin_s, a), (end_s, b) in itertools.pairwise(stages):
            if begin_s <= now_s < end_s:
                return between(a, b, end_s - begin_s, now_s - begin_s)
        place, speed, acceleration = stages[-1][1]
        return place, speed or 0.0, acceleration or 0.0


def _point(message: JointTrajectory, i: int) -> tuple[float, State]:
    speed = float(message.velocity_rad_s[i, 0]) if message.velocity_rad_s.size else None
    return float(message.times_s[i]), (float(message.position_rad[i, 0]), speed, None)


def between(a: State, b: State, span_s: float, t_s: float) -> State:
    """Polynomial of lowest degree that fits both ends."""
    ends = [[value for value in end if value is not None] for end in (a, b)]
    known = min(map(len, ends))  # 1: positions, 2: velocities, 3: accelerations
    powers = np.arange(2 * known)
    rows, values = [], []
    for time_s, end in ((0.0, ends[0]), (span_s, ends[1])):
        for order in range(known):
            falling = np.prod([powers - k for k in range(order)], axis=0) if order else np.ones_like(powers)
            rows.append(falling * np.where(powers >= order, time_s ** np.maximum(powers - order, 0.0), 0.0))
            values.append(end[order])
    poly = np.polynomial.Polynomial(np.linalg.solve(np.array(rows, float), np.array(values)))
    return float(poly(t_s)), float(poly.deriv()(t_s)), float(poly.deriv(2)(t_s))
