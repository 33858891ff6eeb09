"""The safety filter of an arm: the last stop before the motors, and the only one that sends to them.

Pure: no clock, no thread, no bus. Whoever runs it hands in messages with the local monotonic time at which
they were received, and asks by `tick` what to send now. It is silent until it is armed; armed, it either
follows the commands of whoever is in command, or brakes and holds position; a stop is braked, sent, and ends
in silence until the next arming. Holding is the safe thing under position control: a position of zero would
be a blow.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.bus.protocol import Answer
from hardware.description import RobotDescription
from hardware.messages import JointState, JointTrajectory
from hardware.safety.intake import Measured, Order, read_command, read_state, state_fault
from hardware.safety.limits import ArmLimits, Move, braking, frozen, resting_place, towards
from hardware.safety.reasons import Reason
from hardware.safety.workspace import Workspace

Joints = Float[ndarray, " j"]
Source = Literal["policy", "teleop"]
STALE_STATE_PERIODS, STALE_COMMAND_PERIODS = 3.0, 2.0
WAITS = "holding position until the first command"
_SLACK_S = 1e-9  # of comparing times
_BEYOND_RAD = 1.0  # outside of its range, an arm is believed to be this far and no further
_SETTLED = 3  # times that the final position is sent before silence
_LEAST, _LATE, _MOST = (
    0.2,
    1.5,
    2.0,
)  # of a command period: between two sendings; until an unasked one; counted at most


class Phase(Enum):
    """What the filter is doing."""

    DISARMED = "disarmed"  # silent
    ARMED = "armed"  # following, or holding
    STOPPING = "stopping"  # braking to a stop that only a new arming ends


@dataclass(frozen=True, slots=True)
class _Goal:
    position_rad: Joints
    speed_rad_s: Joints  # at which the goal itself moves
    received_s: float


class ArmFilter:
    """See the module. hold_s: how long a hold may last before it becomes a stop; waiting for a first command
    may.

    look_s: until a hold that is not sent at this `tick` has been sent by the next and has reached the arm.
    What would grow too old in that time is too old now, so that the arm is held within the limit and not a
    look after it.
    """

    def __init__(self, robot: RobotDescription, hold_s: float = 1.0, look_s: float = 0.0) -> None:
        self.robot, self.hold_s = robot, hold_s
        self.limits, self.workspace = ArmLimits.of(robot), Workspace.of(robot)
        self._least_step_rad = float(self.limits.step_rad.min())
        self._believed_rad = self.limits.low_rad - _BEYOND_RAD, self.limits.high_rad + _BEYOND_RAD
        self.phase, self.counts = Phase.DISARMED, Counter[Reason]()
        self.reason: Reason | None = Reason.NOT_ARMED  # why it does not follow; None while it does
        self._period_s = 1.0 / robot.command_hz
        self._stale_command_s = _limit_s(STALE_COMMAND_PERIODS * self._period_s, look_s)
        self._stale_state_s = _limit_s(STALE_STATE_PERIODS / robot.state_hz, look_s)
        self._orders: dict[Source, Order] = {"policy": Order(), "teleop": Order()}
        self._state: Measured | None = None
        self._goal: _Goal | None = None
        self._emergency = self._intervening = self._begun = False
        self._now_s, self._held_since_s, self._sent_at_s = -math.inf, math.nan, math.nan
        self._rested = self._stopping = 0  # times sent since the arm rests; since the stop began
        self._sent, self._speed = np.zeros(len(robot.joints)), np.zeros(len(robot.joints))
        self._urgent = False  # something changed: send as soon as sending is allowed
        self.dropped: Reason | None = None  # why the newest command was
        self._knocked_s = (
            -math.inf
        )  # when a command of whoever is in command was last dropped for want of arming
        self.fault = (
            ""  # what is wrong with the states that come; empty while one is understood, or none comes
        )

    @property
    def source(self) -> Source:
        """Sender in command: a human who has taken over, else the policy."""
        return "teleop" if self._intervening else "policy"

    def on_state(self, message: JointState, received_s: float) -> None:
        """The robot's own word on where it is."""
        position = read_state(message, self.robot.names) if math.isfinite(received_s) else None
        if position is None or not self._can_be_at(position):
            self._count(Reason.BAD_STATE)
            self.fault = "" if self._hears(received_s) else state_fault(message, self.robot)
        elif self._jumped(position, received_s):
            self._count(Reason.STATE_JUMP)
        else:
            self._state, self.fault = Measured(position, received_s), ""

    def on_command(self, message: JointTrajectory, source: Source, received_s: float) -> bool:
        """Take a command; False when it was dropped, for the reason `dropped`."""
        position = read_command(message, self.robot.names)
        refused = position if isinstance(position, Reason) else self._refuses(message, source, position)
        self.dropped = refused
        if refused is not None:
            self._knocked_s = (
                received_s if refused is Reason.NOT_ARMED and source == self.source else self._knocked_s
            )
            self._count(refused)
            return False
        assert not isinstance(position, Reason)
        if self._is_first(source, message.epoch):
            self._goal = None
        self._begun = self._urgent = True
        self._orders[source].take(message.epoch, message.sequence)
        self._goal = _Goal(position, self._goal_speed(position), received_s)
        return True

    def on_emergency(self, pressed: bool) -> None:
        """The emergency stop. Releasing it moves nothing: that takes a new arming."""
        self._emergency = pressed
        if pressed:
            self.stop(Reason.EMERGENCY)

    def on_intervention(self, begins: bool) -> None:
        """A human takes over, or gives back. Whoever is in command next begins from where the arm is."""
        if begins != self._intervening:
            self._intervening, self._goal, self._begun = begins, None, False

    def arm(self, now_s: float) -> Answer:
        """From silence to holding position, if the robot is heard and nobody presses the emergency stop."""
        self._advance(now_s)
        why = self._why_not(now_s)
        if why is not None:
            self._count(why)
            return (
                False,
                f"not armed: {self.fault if why is Reason.NO_STATE and self.fault else why.sentence}",
            )
        if self.phase is Phase.ARMED:
            return True, "armed already"
        assert self._state is not None
        for order in self._orders.values():
            order.forget()
        self._goal, self._begun = None, False
        self._sent, self._speed = self._state.position_rad.copy(), np.zeros_like(self._sent)
        self._sent_at_s, self._held_since_s = math.nan, now_s
        self.phase, self.reason = Phase.ARMED, Reason.WAITING
        comes = not _is_stale(now_s, self._knocked_s, self._stale_command_s)
        return (
            True,
            f"armed: {f'commands of {self.source} come and are followed at once' if comes else WAITS}",
        )

    def stop(self, reason: Reason = Reason.REQUESTED) -> Answer:
        """Brake, send the stop, fall silent. Does nothing when the filter is silent already."""
        if self.phase is Phase.ARMED:
            if reason is not self.reason:  # a hold that lasted was counted when it began
                self._count(reason)
            self.phase, self.reason, self._goal, self._urgent = Phase.STOPPING, reason, None, True
            self._rested = self._stopping = 0
        return True, "silent already" if self.phase is Phase.DISARMED else f"stopping: {reason.sentence}"

    def tick(self, now_s: float) -> Joints | None:
        """What to send now (j,), or None. Call it after every message and at least once per command
        period.
        """
        self._advance(now_s)
        if self.phase is Phase.DISARMED or self._state is None:
            return None
        self._judge(now_s)
        dt_s = self._since_sent(now_s)
        if dt_s is None:
            return None
        move = self._move(self._state.position_rad, dt_s)
        self._sent, self._speed, self._sent_at_s = move.position_rad, move.speed_rad_s, now_s
        self._urgent = False
        if self.phase is Phase.STOPPING:
            self._settle()
        return move.position_rad.copy()

    def last_word(self) -> Joints | None:
        """A stop to send when there is no time to brake: hold the position sent last. None when silent."""
        if self.phase is Phase.DISARMED or self._state is None:
            return None
        self.phase = Phase.DISARMED
        return frozen(self._sent, self._state.position_rad, self.limits).position_rad

    def _why_not(self, now_s: float) -> Reason | None:
        if self._emergency:
            return Reason.EMERGENCY_LATCHED
        if self.phase is Phase.STOPPING:
            return Reason.STOPPING
        return None if self._hears(now_s) else Reason.NO_STATE

    def _hears(self, now_s: float) -> bool:
        return self._state is not None and not self._state_is_stale(now_s)

    def _advance(self, now_s: float) -> None:
        """A clock that jumps back makes every age a lie: forget all of them, and stop."""
        if not math.isfinite(now_s) or now_s < self._now_s - _SLACK_S:
            self.stop(Reason.CLOCK)
            self._sent_at_s = math.nan
            if self._state is not None:  # still where the arm was last seen; never fresh again
                self._state = Measured(self._state.position_rad, -math.inf)
            self._now_s = -math.inf
        if math.isfinite(now_s):
            self._now_s = now_s

    def _can_be_at(self, position: Joints) -> bool:
        """An arm may wake up outside its range, not a turn away from it: that is a counter that lost its
        zero.
        """
        low, high = self._believed_rad
        return bool(min(np.minimum(position - low, high - position).tolist()) >= 0.0)

    def _jumped(self, position: Joints, received_s: float) -> bool:
        """Further than twice what its velocity allows, and a step: while silent, any place is believed."""
        if self._state is None or self.phase is Phase.DISARMED:
            return False
        moved_rad = np.abs(position - self._state.position_rad)
        if max(moved_rad.tolist()) <= self._least_step_rad:
            return False
        age_s = received_s - self._state.received_s
        known_s = min(max(age_s, 0.0), STALE_STATE_PERIODS / self.robot.state_hz)
        reach = 2.0 * self.limits.velocity_rad_s * known_s + self.limits.step_rad
        return bool((moved_rad > reach).any())

    def _refuses(self, message: JointTrajectory, source: Source, position: Joints) -> Reason | None:
        if self.phase is not Phase.ARMED or self._state is None:
            return Reason.NOT_ARMED
        if source != self.source:
            return Reason.OUTRANKED if source == "policy" else Reason.NOT_INTERVENING
        if late := self._orders[source].judge(message.epoch, message.sequence):
            return late
        if not self._is_first(source, message.epoch):
            return None
        far = np.abs(position - self._state.position_rad) > self.robot.start_jump_rad
        return Reason.JUMP_AT_START if far.any() else None

    def _is_first(self, source: Source, epoch: int) -> bool:
        """True for this sender's first command since arming, taking over or a reset."""
        return not self._begun or self._orders[source].is_new(epoch)

    def _goal_speed(self, position: Joints) -> Joints:
        """From one command to the next, at the rate at which they are due."""
        if self._goal is None:
            return np.zeros_like(position)
        most = self.limits.velocity_rad_s
        speed: Joints = np.minimum(
            np.maximum((position - self._goal.position_rad) / self._period_s, -most), most
        )
        return speed

    def _judge(self, now_s: float) -> None:
        """Follow, hold or stop: sets `reason`, and ends a hold that lasts."""
        if self.phase is not Phase.ARMED:
            return
        before, goal = self.reason, self._goal
        if self._state_is_stale(now_s):
            self.reason = Reason.STALE_STATE
        elif goal is not None and not _is_stale(now_s, goal.received_s, self._stale_command_s):
            self.reason = None
        else:
            self.reason = Reason.STALE_COMMAND if self._begun else Reason.WAITING
        if self.reason is None:
            return
        self._goal = None  # what has grown old is never followed again
        if self.reason is not before:
            self._count(self.reason)
            self._held_since_s, self._urgent = now_s, True
        elif self.reason is not Reason.WAITING and now_s - self._held_since_s > self.hold_s:
            self.stop(self.reason)

    def _state_is_stale(self, now_s: float) -> bool:
        assert self._state is not None
        return _is_stale(now_s, self._state.received_s, self._stale_state_s)

    def _since_sent(self, now_s: float) -> float | None:
        """Seconds since the last sending, as far as they count; None when it is too early for another."""
        if not math.isfinite(self._sent_at_s):
            return self._period_s
        since_s = now_s - self._sent_at_s
        due = _LEAST if self._urgent else (_LATE if self.reason is None else 1.0)
        if since_s < due * self._period_s - _SLACK_S:
            return None
        return min(since_s, _MOST * self._period_s)

    def _move(self, measured: Joints, dt_s: float) -> Move:
        """The step to make now, inside every limit."""
        goal, args = self._goal, (self._sent, self._speed, measured, dt_s, self.limits)
        move = braking(*args) if goal is None else towards(goal.position_rad, goal.speed_rad_s, *args)
        if goal is not None:  # between two commands nothing says that the goal moves on
            self._goal = _Goal(goal.position_rad, np.zeros(len(measured)), goal.received_s)
        felt = (
            (Reason.POSITION, move.clipped),
            (Reason.VELOCITY, move.slowed),
            (Reason.ACCELERATION, move.eased),
        )
        for reason, was in (*felt, (Reason.STEP, move.pulled)):
            if was:
                self._count(reason)
        return move if self.workspace is None else self._fenced(self.workspace, move, measured, dt_s)

    def _fenced(self, workspace: Workspace, move: Move, measured: Joints, dt_s: float) -> Move:
        """The step if it stays in the workspace; else brake; else, where even that leads out, stop at
        once.
        """
        sent_m = workspace.excess_m(self._sent)
        if workspace.allows(move.position_rad, resting_place(move, self.limits), sent_m):
            return move
        slower = braking(self._sent, self._speed, measured, dt_s, self.limits)
        if self._goal is not None:
            self._count(Reason.WORKSPACE)
        if workspace.excess_m(slower.position_rad) <= sent_m:
            return slower
        return frozen(self._sent, measured, self.limits)

    def _settle(self) -> None:
        """Silent once the arm rests; or after a while, where a hand keeps moving it."""
        self._stopping += 1
        self._rested = 0 if self._speed.any() else self._rested + 1
        longest_s = 1.0 + float((self.limits.velocity_rad_s / self.limits.acceleration_rad_s2).max())
        if self._rested >= _SETTLED or self._stopping > longest_s / self._period_s:
            self.phase = Phase.DISARMED

    def _count(self, reason: Reason) -> None:
        self.counts[reason] += 1


def _limit_s(most_s: float, look_s: float) -> float:
    """The age at which to call a message stale, if the next look is so much later. Rare looks do not make all
    stale.
    """
    return most_s - min(look_s, 0.5 * most_s)


def _is_stale(now_s: float, received_s: float, limit_s: float) -> bool:
    """Also for what was received in the future, or never."""
    return not -_SLACK_S <= now_s - received_s <= limit_s + _SLACK_S
