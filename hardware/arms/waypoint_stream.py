"""Targets at the command rate as short trajectories, which a trajectory controller joins without a jump.

A joint_trajectory_controller that gets a new message interpolates from a start to the message's first
waypoint. By default this start is the measured position, which lags behind the commanded one, so that a
stream of single waypoints takes the command back by the lag at every message. Each trajectory here begins
with the position and velocity that the one before it has reached by now, is at the target after one period,
and at rest one period later: if the stream ends, the arm brakes. Where the controller starts from the desired
state by itself (`interpolate_from_desired_state`), the beginning is left to it, and delays of the transport
do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from hardware.arms.bounds import JointLimits
from robo_rl.core.shapes import Float

Joints = Float[ndarray, " j"]


@dataclass(frozen=True, slots=True)
class Waypoints:
    """k waypoints with velocities, each `times_s` after the controller receives them."""

    position_rad: Float[ndarray, "k j"]
    velocity_rad_s: Float[ndarray, "k j"]
    times_s: Float[ndarray, " k"]

    def at(self, time_s: float) -> tuple[Joints, Joints]:
        """(position, velocity) at this time, from the cubic between two waypoints; held after the last."""
        i = int(np.searchsorted(self.times_s, time_s, side="right")) - 1
        if i >= len(self.times_s) - 1:
            return self.position_rad[-1], np.zeros_like(self.position_rad[-1])
        i = max(0, i)
        span_s = float(self.times_s[i + 1] - self.times_s[i])
        s = max(0.0, time_s - float(self.times_s[i])) / span_s
        p, q = self.position_rad[i], self.position_rad[i + 1]
        u, v = span_s * self.velocity_rad_s[i], span_s * self.velocity_rad_s[i + 1]
        c, d = 3.0 * (q - p) - 2.0 * u - v, 2.0 * (p - q) + u + v  # Hermite
        return p + s * (u + s * (c + s * d)), (u + s * (2.0 * c + s * 3.0 * d)) / span_s


class WaypointStream:
    """period_s: of targets. joins: the controller starts from its own desired state."""

    def __init__(self, period_s: float, limits: JointLimits, joins: bool = False) -> None:
        self._period_s, self._limits, self.joins = period_s, limits, joins
        self._last: Waypoints | None = None
        self._target_rad: Joints | None = None
        self._sent_s = 0.0

    def reset(self) -> None:
        """Begin at rest, where the arm is measured."""
        self._last = self._target_rad = None

    def next(self, target_rad: Joints, measured_rad: Joints, now_s: float) -> Waypoints:
        """Waypoints to send now, for a target that is due after one period."""
        place_rad, speed_rad_s = self._reached(measured_rad, now_s)
        before_rad = place_rad if self._target_rad is None else self._target_rad
        most = np.asarray(self._limits.velocity_rad_s)
        towards_rad_s = np.clip((target_rad - before_rad) / self._period_s, -most, most)
        rest_rad = self._inside(target_rad + 0.5 * self._period_s * towards_rad_s)
        rows = np.stack([place_rad, target_rad, rest_rad])
        speeds = np.stack([speed_rad_s, towards_rad_s, np.zeros_like(rest_rad)])
        self._target_rad = target_rad
        return self._note(rows, speeds, np.array([0.0, 1.0, 2.0]) * self._period_s, now_s)

    def rest(self, measured_rad: Joints, now_s: float) -> Waypoints:
        """Waypoints that bring the arm to rest within two periods."""
        place_rad, speed_rad_s = self._reached(measured_rad, now_s)
        rest_rad = self._inside(place_rad + self._period_s * speed_rad_s)
        rows, speeds = np.stack([place_rad, rest_rad]), np.stack([speed_rad_s, np.zeros_like(rest_rad)])
        self._target_rad = rest_rad
        return self._note(rows, speeds, np.array([0.0, 2.0]) * self._period_s, now_s)

    def _reached(self, measured_rad: Joints, now_s: float) -> tuple[Joints, Joints]:
        if self._last is None:
            return measured_rad, np.zeros_like(measured_rad)
        return self._last.at(now_s - self._sent_s)

    def _inside(self, place_rad: Joints) -> Joints:
        inside: Joints = np.clip(place_rad, self._limits.low_rad, self._limits.high_rad)
        return inside

    def _note(self, rows: ndarray, speeds: ndarray, times_s: ndarray, now_s: float) -> Waypoints:
        self._last, self._sent_s = Waypoints(rows, speeds, times_s), now_s
        skip = 1 if self.joins else 0
        return Waypoints(rows[skip:], speeds[skip:], times_s[skip:])
