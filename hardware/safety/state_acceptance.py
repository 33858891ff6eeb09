"""Acceptance of measured states of an arm: understood, possible, and reachable since the last one."""

from __future__ import annotations

import math

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.messages import JointState
from hardware.safety.limits import ArmLimits
from hardware.safety.message_parsing import Measured, read_state, state_fault
from hardware.safety.reasons import Reason
from hardware.safety.timing import STALE_STATE_PERIODS, age_limit_s, is_stale
from robo_rl.core.shapes import Float

Joints = Float[ndarray, " j"]
_SPEED_MARGIN = 1.25  # a joint may be a little faster than what it is commanded
_NOISE_RAD = 0.01  # encoder noise
_BUNCHED_PERIODS = 5.0
_BEYOND_RAD = 1.0  # margin outside its range within which a joint's measured position is accepted


class StateAcceptance:
    """Newest accepted measurement.

    Promises:
    - a measurement is finite, covers every joint, and lies at most 1 rad outside each joint's range;
    - while the filter is armed it is no further from the last one than the joints can have moved in the time
      between them: an encoder fault, or a second publisher of states (STATE_JUMP, which stops the arm);
    - `fault` says what is wrong with the states that come while none of them is accepted.
    """

    def __init__(self, robot: RobotDescription, limits: ArmLimits, look_s: float) -> None:
        """look_s: time until the filter looks again; see `age_limit_s`."""
        self.newest: Measured | None = None
        self.fault = ""  # empty while a state is accepted, or none comes
        self._robot, self._limits = robot, limits
        self._most_s = STALE_STATE_PERIODS / robot.state_hz
        self._age_limit_s = age_limit_s(self._most_s, look_s)
        # Messages may come closer together than they were measured: after a stall, those that waited come at
        # once.
        self._jitter_s = _BUNCHED_PERIODS / robot.state_hz
        # After the last state that arrived in time the arm may still brake.
        self._longest_s = self._most_s + limits.velocity_rad_s / limits.acceleration_rad_s2
        self._low_rad, self._high_rad = limits.low_rad - _BEYOND_RAD, limits.high_rad + _BEYOND_RAD

    def take(self, message: JointState, received_s: float, armed: bool) -> Reason | None:
        """Accept a state, or return why it is dropped."""
        position = read_state(message, self._robot.names) if math.isfinite(received_s) else None
        if position is None or not self._is_possible(position):
            self.fault = "" if self.is_fresh(received_s) else state_fault(message, self._robot)
            return Reason.BAD_STATE
        if armed and self._jumped(position, received_s):
            return Reason.STATE_JUMP
        self.newest, self.fault = Measured(position, received_s), ""
        return None

    def is_fresh(self, now_s: float) -> bool:
        """True when a state was accepted and is young enough to move by."""
        return self.newest is not None and not is_stale(now_s, self.newest.received_s, self._age_limit_s)

    def expire(self) -> None:
        """Make the newest state stale for good; its position stays the last one known."""
        if self.newest is not None:
            self.newest = Measured(self.newest.position_rad, -math.inf)

    def _is_possible(self, position: Joints) -> bool:
        """True within the range and a margin.

        An arm may wake up outside its range, but not a turn away from it: that is an encoder that lost its
        zero.
        """
        inside = np.minimum(position - self._low_rad, self._high_rad - position)
        return bool(min(inside.tolist()) >= 0.0)

    def _jumped(self, position: Joints, received_s: float) -> bool:
        """True when the arm cannot have moved so far since the last state."""
        if self.newest is None:
            return False
        moved_rad = np.abs(position - self.newest.position_rad)
        between_s = np.minimum(max(received_s - self.newest.received_s, 0.0), self._longest_s)
        reach_rad = _SPEED_MARGIN * self._limits.velocity_rad_s * (between_s + self._jitter_s) + _NOISE_RAD
        return bool((moved_rad > reach_rad).any())
