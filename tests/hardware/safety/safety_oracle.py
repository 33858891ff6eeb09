"""Oracle of the arm's filter: its promises, implemented a second time.

The oracle sees every call and every answer. It keeps its own record of what was received, when, and
from whom, and knows nothing of how the filter works; it does not import it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hardware.description import RobotDescription
from hardware.kinematics import forward_kinematics
from hardware.messages import JointState, JointTrajectory

EPS = 1e-7


class Oracle:
    """Raises AssertionError with the broken promise."""

    def __init__(self, robot: RobotDescription) -> None:
        self.robot, self.period_s = robot, 1.0 / robot.command_hz
        self.low, self.high = robot.column("low_rad"), robot.column("high_rad")
        self.vmax, self.amax = robot.column("velocity_rad_s"), robot.column("acceleration_rad_s2")
        self.step = 0.1 * self.vmax  # what a description without step_rad means
        self.measured: Any = None  # the last state that could be believed
        self.measured_s = self.command_s = -math.inf
        self.now_s = -math.inf
        self.may_send = self.emergency = self.human = self.stopping = False
        self.first, self.held = True, False  # held: the newest message accepted asked for a hold
        self.last: dict[str, float | None] = {"policy": None, "teleop": None}
        self.sent: Any = None
        self.speed = np.zeros(len(robot.names))
        self.sent_s = math.nan

    def state(self, message: JointState, received_s: float) -> None:
        values = dict(zip(message.names, np.ravel(message.position_rad), strict=False))
        if len(message.names) != np.size(message.position_rad) or not set(self.robot.names) <= values.keys():
            return
        place = np.array([values[name] for name in self.robot.names])
        if not (
            np.isfinite(place).all() and (place >= self.low - 1.0).all() and (place <= self.high + 1.0).all()
        ):
            return  # no place where this arm can be
        if self.measured is not None and self.may_send:
            # 3 periods until a state is stale, then the arm brakes; messages bunch by 5 periods; 10 mrad of
            # noise.
            moved_s = np.clip(
                received_s - self.measured_s, 0.0, 3.0 / self.robot.state_hz + self.vmax / self.amax
            )
            if (
                np.abs(place - self.measured)
                > 1.25 * self.vmax * (moved_s + 5.0 / self.robot.state_hz) + 0.01
            ).any():
                self.stop()
                return
        self.measured, self.measured_s = place, received_s

    def command(self, message: JointTrajectory, source: str, received_s: float, taken: bool) -> None:
        """Check that an accepted command was acceptable."""
        if not taken:
            return
        assert self.may_send, "a command was taken while not armed"
        assert not self.stopping, "a command was taken while stopping"
        self.held = len(message.position_rad) == len(message.times_s) == 0
        if not self.held:
            assert np.shape(message.position_rad) == (1, len(self.robot.names)), "wrong shape taken"
            assert np.isfinite(message.position_rad).all(), "a value that is not finite was taken"
            assert sorted(message.names) == sorted(self.robot.names), "other joints taken"
        assert source == ("teleop" if self.human else "policy"), "the wrong one was heard"
        stamp_s, before = message.stamp_s, self.last[source]
        assert math.isfinite(stamp_s), "a stamp that is not finite was taken"
        unstamped = stamp_s == before == 0.0  # of a program that says "now"
        assert before is None or stamp_s > before or unstamped, "a command was taken out of order"
        self.last[source] = stamp_s
        if self.held:
            return
        paused = not -1e-6 <= received_s - self.command_s <= 5.0 * self.period_s + 1e-6
        if self.first or paused:
            place = np.array(
                [message.position_rad[0][message.names.index(name)] for name in self.robot.names]
            )
            assert (np.abs(place - self.measured) <= self.robot.start_jump_rad).all(), (
                "a jump at the start was taken"
            )
        self.first, self.command_s = False, received_s

    def emergency_stop(self, pressed: bool) -> None:
        self.emergency = pressed
        self.stopping = self.stopping or (pressed and self.may_send)

    def intervention(self, begins: bool) -> None:
        if begins != self.human:
            self.human, self.first, self.command_s, self.held = begins, True, -math.inf, False

    def stop(self) -> None:
        self.stopping = self.stopping or self.may_send

    def clock(self, now_s: float) -> None:
        if not math.isfinite(now_s) or now_s < self.now_s - 1e-9:
            self.stop()
            self.measured_s = self.command_s = -math.inf
            self.sent_s = math.nan
            self.now_s = -math.inf
        if math.isfinite(now_s):
            self.now_s = now_s

    def armed(self, now_s: float, granted: bool, was_armed: bool) -> None:
        self.clock(now_s)
        if not granted:
            return
        assert not self.emergency, "armed while the emergency stop was pressed"
        assert now_s - self.measured_s <= 3.0 / self.robot.state_hz + 1e-6, "armed without a fresh state"
        self.last = {"policy": None, "teleop": None}
        if not was_armed:
            self.may_send, self.stopping, self.first, self.command_s = True, False, True, -math.inf
            self.sent, self.speed, self.sent_s = self.measured.copy(), np.zeros_like(self.speed), math.nan

    def silent(self) -> None:
        """Check that the filter may be disarmed."""
        self.may_send = self.stopping = False

    def sends(self, now_s: float, out: Any) -> None:
        """Check the output of a tick."""
        self.clock(now_s)
        if out is None:
            return
        assert self.may_send, "sent before it was armed"
        assert out.shape == self.sent.shape, "sent the wrong shape"
        assert np.isfinite(out).all(), "sent what is not finite"
        dt_s = self.period_s if not math.isfinite(self.sent_s) else now_s - self.sent_s
        assert dt_s >= 0.2 * self.period_s - 1e-6, "sent too often"
        dt_s = min(dt_s, 2.0 * self.period_s)
        speed, slack = (out - self.sent) / dt_s, EPS / dt_s
        assert (np.abs(speed) <= self.vmax + slack).all(), "too fast"
        assert (np.abs(speed - self.speed) <= self.amax * dt_s + slack).all(), "sped up or braked too much"
        slower = np.maximum(np.abs(self.speed) - self.amax * dt_s, 0.0)
        if self.robot.workspace is not None:  # all joints by one factor, that of the slowest to stop
            slower = np.abs(self.speed) * max(
                0.0, 1.0 - dt_s / max(1e-12, (np.abs(self.speed) / self.amax).max())
            )
        brakes = np.abs(speed) <= slower + slack
        behind = speed * (self.sent - self.measured) < 0.0  # it moves towards where the arm is measured
        far = np.abs(out - self.measured) > self.step + EPS
        assert (brakes | behind | ~far).all(), "further from the measured position than a step"
        if not self._follows(now_s):
            returns = behind & (np.abs(self.sent - self.measured) > self.step)
            assert (brakes | returns).all(), "moved on although it had to hold"
        self._range(out)
        self._workspace(out)
        self.sent, self.speed, self.sent_s = out, speed, now_s

    def _follows(self, now_s: float) -> bool:
        """True if there is a command that may be followed."""
        fresh = now_s - self.command_s <= 2.0 * self.period_s + 1e-6
        return (
            not self.stopping
            and not self.held
            and fresh
            and now_s - self.measured_s <= 3.0 / self.robot.state_hz + 1e-6
        )

    def _range(self, out: Any) -> None:
        """Outside the range only after starting there, and never further out than the command before."""
        above, below = np.maximum(self.high, self.sent), np.minimum(self.low, self.sent)
        assert ((out <= above + EPS) & (out >= below - EPS)).all(), "beyond the range"

    def _workspace(self, out: Any) -> None:
        box = self.robot.workspace
        if box is None:
            return
        forward = forward_kinematics(self.robot)
        before, after = (
            float(np.maximum(np.array(box.low_m) - p, p - np.array(box.high_m)).max())
            for p in map(forward, (self.sent, out))
        )
        assert after <= max(before, 0.0) + EPS, "out of the workspace"
