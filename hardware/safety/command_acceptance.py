"""Acceptance of commands to an arm: well formed, from the sender in command, in order, fresh."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.messages import JointTrajectory
from hardware.safety.limits import Target
from hardware.safety.message_parsing import StampOrder, is_hold_request, read_command
from hardware.safety.reasons import Reason
from hardware.safety.timing import STALE_COMMAND_PERIODS, START_PERIODS, age_limit_s, is_stale
from robo_rl.core.shapes import Bool, Float

Joints = Float[ndarray, " j"]
Source = Literal["policy", "teleop"]


def new_orders() -> dict[Source, StampOrder]:
    """Order of the messages of each sender, before the first."""
    return {"policy": StampOrder(), "teleop": StampOrder()}


class CommandAcceptance:
    """Newest accepted command of the sender in command.

    Promises:
    - `target` comes only from a command that is finite, names the robot's joints, and was sent by `source`;
    - each stamp of a sender is accepted once, and never after a later one;
    - the first command since arming, a takeover or a pause of 5 periods lies within `start_jump_rad` of the
      measured position, but for a gripper, which holds objects by a further command; a sender that was
      reset pauses for longer (`hardware.loop.head`);
    - a command that has grown stale is dropped and never followed again (`expire`);
    - after a request for a hold nothing is followed until a later command is accepted.
    """

    def __init__(
        self,
        robot: RobotDescription,
        look_s: float,
        orders: dict[Source, StampOrder] | None = None,
        joints: Bool[ndarray, " j"] | None = None,
    ) -> None:
        """look_s: time until the filter looks again; see `age_limit_s`. orders: of both senders, which
        several of these may share. joints: those that the commands move; None: all.
        """
        self.target: Target | None = None
        self.received_any = False  # accepted a command since arming or the last takeover
        self.hold_requested = False  # the newest message accepted asked for a hold
        self._robot, self._period_s = robot, 1.0 / robot.command_hz
        self._velocity_rad_s = robot.column("velocity_rad_s")
        self._age_limit_s = age_limit_s(STALE_COMMAND_PERIODS * self._period_s, look_s)
        self._orders = new_orders() if orders is None else orders
        moved = np.ones(len(robot.names), bool) if joints is None else joints
        self._may_not_jump = moved & ~robot.is_gripper  # a gripper that holds something is measured there
        self._received_s = math.nan  # time at which the target was received
        self._unarmed_s = -math.inf  # last time that a command of `source` was dropped as not armed
        self._intervening = False

    @property
    def source(self) -> Source:
        """Sender in command: a human who has taken over, else the policy."""
        return "teleop" if self._intervening else "policy"

    def intervene(self, begins: bool) -> None:
        """Give command to the human, or back to the policy. The next sender begins from where the arm is."""
        if begins != self._intervening:
            self._intervening, self.target, self.received_any = begins, None, False
            self.hold_requested = False

    def restart(self) -> None:
        """Accept any first command, as after arming."""
        self.forget_stamps()
        self.begin()

    def begin(self) -> None:
        """Let the next command begin from where the arm is; its stamp still has to be a later one."""
        self.target, self.received_any, self.hold_requested = None, False, False

    def forget_stamps(self) -> None:
        """Accept any stamp next, as after a clock was set back."""
        for order in self._orders.values():
            order.forget()

    def take(
        self, message: JointTrajectory, source: Source, received_s: float, measured_rad: Joints | None
    ) -> Reason | None:
        """Accept a command, or return why it is dropped. measured_rad: None while the filter is not armed."""
        if is_hold_request(message):
            return self._take_hold(message, source, measured_rad)
        position = read_command(message, self._robot.names)
        if isinstance(position, Reason):
            return position
        if refused := self._refusal(message, source, measured_rad):
            if refused is Reason.NOT_ARMED and source == self.source:
                self._unarmed_s = received_s
            return refused
        if self._jumps(position, received_s, measured_rad):
            return Reason.JUMP_AT_START
        if self._is_first(received_s):
            self.target = None
        self._orders[source].take(message.stamp_s)
        self.target, self._received_s = Target(position, self._speed_to(position)), received_s
        self.received_any, self.hold_requested = True, False
        return None

    def is_fresh(self, now_s: float) -> bool:
        """True while there is a target and its command is young enough to be followed."""
        return self.target is not None and not is_stale(now_s, self._received_s, self._age_limit_s)

    def expire(self) -> None:
        """Forget the target: what has grown stale is never followed again."""
        self.target = None

    def assume_still(self) -> None:
        """Take the target as standing still until the next command says otherwise."""
        if self.target is not None:
            self.target = Target(self.target.position_rad, np.zeros_like(self.target.position_rad))

    def dropped_unarmed_lately(self, now_s: float) -> bool:
        """True when a command of the sender in command was dropped just now because nothing was armed."""
        return not is_stale(now_s, self._unarmed_s, self._age_limit_s)

    def _take_hold(
        self, message: JointTrajectory, source: Source, measured_rad: Joints | None
    ) -> Reason | None:
        """Accept a request for a hold, or return why it is dropped."""
        if refused := self._refusal(message, source, measured_rad):
            return refused
        self._orders[source].take(message.stamp_s)
        self.target, self.hold_requested = None, self.received_any
        return None

    def _refusal(
        self, message: JointTrajectory, source: Source, measured_rad: Joints | None
    ) -> Reason | None:
        if measured_rad is None:
            return Reason.NOT_ARMED
        if source != self.source:
            return Reason.OUTRANKED if source == "policy" else Reason.NOT_INTERVENING
        return self._orders[source].check(message.stamp_s)

    def _jumps(self, position: Joints, received_s: float, measured_rad: Joints | None) -> bool:
        """True for a first command that is too far from the measured position."""
        if measured_rad is None or not self._is_first(received_s):
            return False
        far = np.abs(position - measured_rad) > self._robot.start_jump_rad
        return bool((far & self._may_not_jump).any())

    def _is_first(self, received_s: float) -> bool:
        """True for this sender's first command since arming, a takeover or a pause."""
        return not self.received_any or is_stale(received_s, self._received_s, START_PERIODS * self._period_s)

    def _speed_to(self, position: Joints) -> Joints:
        """Speed of the target from one command to the next, at the rate at which commands are due."""
        if self.target is None:
            return np.zeros_like(position)
        most = self._velocity_rad_s
        speed: Joints = np.minimum(
            np.maximum((position - self.target.position_rad) / self._period_s, -most), most
        )
        return speed
