"""The safety filter of an arm: the last stop before the motors, and the only one that sends to them.

Pure: no clock, no thread, no bus. The node that runs it hands in messages with the local monotonic time at
which they were received, and asks by `tick` what to send now. The filter is silent until it is armed. Armed,
it either follows the commands of the sender in command, or brakes and holds position. A stop brakes, sends
the final position, and ends in silence until the next arming. Holding is the safe action under position
control; sending zeros would be a jump.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from hardware.bus.protocol import Answer
from hardware.description import RobotDescription
from hardware.messages import JointState, JointTrajectory
from hardware.safety.command_acceptance import Source
from hardware.safety.limits import ArmLimits, Move, next_move
from hardware.safety.phase import Phase, PhaseMachine
from hardware.safety.reasons import Reason
from hardware.safety.shared_commands import SharedCommands
from hardware.safety.state_acceptance import StateAcceptance
from hardware.safety.timing import SLACK_S, SendSchedule
from hardware.safety.workspace import Workspace
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float

Joints = Float[ndarray, " j"]
WAITS = "holding position until the first command"


class ArmFilter:
    """Output of an arm's safety filter, composed of five parts, each with promises of its own.

    - `StateAcceptance`: which measurements are accepted;
    - `SharedCommands`: which commands are followed, for how long, and whose;
    - `PhaseMachine`: whether the filter is silent, holds, follows or stops;
    - `SendSchedule`: when to send;
    - `next_move`: the command to send, within every limit, for any input.

    The filter itself promises that nothing is sent before `arm`, that the emergency stop is latched
    until it is released and the filter is armed again, and that a clock that runs backwards stops the
    arm.

    hold_s: longest hold before it becomes a stop; waiting for the first command is not limited. look_s:
    longest time until the next `tick` and the arrival of its command. A message that would grow stale
    within this time counts as stale now, so that the arm is held within the limit and not later.
    """

    def __init__(self, robot: RobotDescription, hold_s: float = 1.0, look_s: float = 0.0) -> None:
        self.robot, self.hold_s = robot, hold_s
        self.limits, self.workspace = ArmLimits.of(robot), Workspace.of(robot)
        self.counts = Counter[Reason]()
        self.dropped: Reason | None = None  # why the newest command was dropped; None when it was accepted
        self._commands = SharedCommands(robot, look_s)
        self._states = StateAcceptance(robot, self.limits, look_s)
        self._schedule = SendSchedule(1.0 / robot.command_hz)
        self._phase = PhaseMachine(hold_s, _longest_stop_s(self.limits) / self._schedule.period_s)
        self._last = Move(np.zeros(len(robot.joints)), np.zeros(len(robot.joints)))  # sent last
        self._emergency, self._now_s, self._part_held = False, -math.inf, False
        self.publisher_conflict = ""  # sentence while a topic that moves the arm has two publishers

    @property
    def phase(self) -> Phase:
        return self._phase.phase

    @property
    def reason(self) -> Reason | None:
        """Why the filter does not follow commands; None while it does."""
        return self._phase.reason

    @property
    def source(self) -> Source:
        """Sender in command: a human who has taken over, else the policy."""
        return self._commands.source

    @property
    def followed(self) -> tuple[Source, ...]:
        """Senders whose commands are followed: one, or both of shared control."""
        return self._commands.followed

    @property
    def human_joints(self) -> Bool[ndarray, " j"]:
        """Joints that a human drives during an intervention."""
        return self._commands.own_joints

    def drives(self, source: Source) -> bool:
        """True if commands of this sender are followed, of all joints or of its own."""
        return self._commands.drives(source)

    @property
    def measured_rad(self) -> Joints | None:
        """Newest accepted position of the joints; None before the first."""
        return None if self._states.newest is None else self._states.newest.position_rad

    @property
    def start_rad(self) -> Joints | None:
        """Position from which a human's motion begins: measured, and of a gripper what was sent last."""
        if self.measured_rad is None or self.robot.gripper is None:
            return self.measured_rad
        return np.where(self.robot.is_gripper, self._last.position_rad, self.measured_rad)

    @property
    def fault(self) -> str:
        """What is wrong with the states that come; empty while one is accepted, or none comes."""
        return self._states.fault

    def on_state(self, message: JointState, received_s: float) -> None:
        """Take the robot's own measurement of where it is."""
        refused = self._states.take(message, received_s, armed=self.phase is not Phase.DISARMED)
        if refused is Reason.STATE_JUMP:
            self.stop(refused)
        elif refused is not None:
            self._count(refused)

    def on_command(self, message: JointTrajectory, source: Source, received_s: float) -> bool:
        """Take a command; False when it was dropped, for the reason `dropped`."""
        state = self._states.newest if self.phase is Phase.ARMED else None
        measured = None if state is None else state.position_rad
        self.dropped = self._commands.take(message, source, received_s, measured)
        if self.dropped is not None:
            self._count(self.dropped)
            return False
        if self._commands.leads(source):
            self._schedule.request_now()
        return True

    def on_emergency(self, pressed: bool) -> None:
        """Latch the emergency stop, or release it. Releasing moves nothing: that takes a new arming."""
        self._emergency = pressed
        if pressed:
            self.stop(Reason.EMERGENCY)

    def on_two_publishers(self, sentence: str) -> None:
        """Note that a topic that moves the arm has two publishers, which stops it; empty: one is left."""
        self.publisher_conflict = sentence
        if sentence:
            self.stop(Reason.SECOND_PUBLISHER)

    def on_intervention(self, begins: bool) -> None:
        """Give command to a human, or back. The next sender begins from where the arm is."""
        self._commands.intervene(begins)

    def on_share(self, names: Sequence[str]) -> None:
        """Reserve joints for a human while the policy drives the others; no names: end it.

        Raises ConfigError for a name that is no joint's, and changes nothing then.
        """
        if unknown := [name for name in names if name not in self.robot.names]:
            raise ConfigError(
                f"'{unknown[0]}' is no joint of '{self.robot.name}', which has {', '.join(self.robot.names)}."
            )
        self._commands.share(np.isin(self.robot.names, names))

    def arm(self, now_s: float) -> Answer:
        """Begin to hold position, if states come, topics have one publisher each, and no stop is pressed."""
        self._advance(now_s)
        why = self._phase.refusal(
            self._emergency, bool(self.publisher_conflict), self._states.is_fresh(now_s)
        )
        if why is not None:
            self._count(why)
            details = {Reason.NO_STATE: self.fault, Reason.TWO_PUBLISHERS: self.publisher_conflict}
            return False, f"not armed: {details.get(why) or why.sentence}"
        if self.phase is Phase.ARMED:
            self._commands.forget_stamps()
            return True, "armed already"
        assert self._states.newest is not None
        self._commands.restart()
        self._schedule.restart()
        self._phase.arm(now_s)
        position = self._states.newest.position_rad.copy()
        self._last = Move(position, np.zeros_like(position))
        comes = self._commands.dropped_unarmed_lately(now_s)
        next_ = f"commands of {self.source} come and are followed at once" if comes else WAITS
        return True, f"armed: {next_}"

    def stop(self, reason: Reason = Reason.REQUESTED) -> Answer:
        """Brake, send the final position, fall silent. Does nothing when the filter is silent already."""
        if self.phase is Phase.ARMED:
            if self._phase.stop(reason):
                self._count(reason)
            self._commands.expire()
            self._schedule.request_now()
        return True, "silent already" if self.phase is Phase.DISARMED else f"stopping: {reason.sentence}"

    def tick(self, now_s: float) -> Joints | None:
        """Position to send now (j,), or None. Call it after every message and once per period at least."""
        self._advance(now_s)
        state = self._states.newest
        if self.phase is Phase.DISARMED or state is None:
            return None
        if self.phase is Phase.ARMED:
            self._follow_or_hold(now_s)
        dt_s = self._schedule.due_s(now_s, following=self.reason is None)
        if dt_s is None:
            return None
        target = self._commands.target
        move = next_move(self._last, state.position_rad, target, dt_s, self.limits, self.workspace)
        self._commands.assume_still()
        for reason in move.limited_by:
            self._count(reason)
        self._last = move
        self._schedule.sent(now_s)
        if self.phase is Phase.STOPPING:
            self._phase.note_stopping_command(at_rest=not move.speed_rad_s.any())
        return move.position_rad.copy()

    def finish(self) -> Joints | None:
        """Position to send without time to brake: one braking step, then silence. None when silent."""
        if self.phase is Phase.DISARMED or self._states.newest is None:
            return None
        self._phase.disarm()
        still = self._last.position_rad
        move = next_move(self._last, still, None, self._schedule.period_s, self.limits, self.workspace)
        return move.position_rad

    def _advance(self, now_s: float) -> None:
        """Note the time. Ages mean nothing once the clock jumps back: forget all of them, and stop."""
        if not math.isfinite(now_s) or now_s < self._now_s - SLACK_S:
            self.stop(Reason.CLOCK)
            self._schedule.restart()
            self._states.expire()
            self._now_s = -math.inf
        if math.isfinite(now_s):
            self._now_s = now_s

    def _follow_or_hold(self, now_s: float) -> None:
        """Follow, hold, or stop when a hold has lasted too long."""
        why = self._reason_to_hold(now_s)
        if why is None:
            self._phase.follow()
            part_held = self._commands.shared and len(self._commands.followed) < 2
            if part_held and not self._part_held:
                self._count(Reason.PART_HELD)
            self._part_held = part_held
            return
        self._commands.expire()
        if self._phase.hold(why, now_s):
            self._count(why)
            self._schedule.request_now()
        if self._phase.held_too_long(now_s):
            self.stop(why)

    def _reason_to_hold(self, now_s: float) -> Reason | None:
        if not self._states.is_fresh(now_s):
            return Reason.STALE_STATE
        if self._commands.is_fresh(now_s):
            return None
        if self._commands.hold_requested:
            return Reason.HOLD_REQUESTED
        return Reason.STALE_COMMAND if self._commands.received_any else Reason.WAITING

    def _count(self, reason: Reason) -> None:
        self.counts[reason] += 1


def _longest_stop_s(limits: ArmLimits) -> float:
    """Time in which every joint can brake from full speed, and a second more."""
    return 1.0 + float((limits.velocity_rad_s / limits.acceleration_rad_s2).max())
