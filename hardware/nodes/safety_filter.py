"""The safety filter's node of an arm: the only sender to the robot."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.bus.lifecycle import FINALIZED, manage
from hardware.bus.protocol import Answer, Bus
from hardware.description import RobotDescription
from hardware.messages import Flag, JointJog, JointState, JointTrajectory, Text, Twist
from hardware.nodes.shared.auto_arm import AutoArm
from hardware.nodes.shared.dropped import DropReporter, jump_words
from hardware.nodes.shared.emergency_stop import EmergencyStop
from hardware.nodes.shared.filter_watch import unarmed
from hardware.nodes.shared.operator_lease import OperatorLease
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.send_clock import SendClock
from hardware.nodes.shared.sole_publishers import SolePublishers
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.command_acceptance import Source
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason, last_account
from hardware.teleop.velocity import VelocityTeleop
from hardware.topic import Topic
from hardware.topics import (
    INTERVENTION,
    JOINT_JOG,
    JOINT_STATES,
    RAW,
    SAFE,
    SAFETY_STATE,
    TELEOP,
    TELEOP_JOINTS,
    TWIST,
)
from robo_rl.core.errors import ConfigError, MissingDependencyError
from robo_rl.core.shapes import Float

WATCHDOG_HZ = (
    200.0,
    500.0,
)  # least rate of ticks, and the most that a high state rate leads to
_ON_THE_WAY = 1.5  # ticks until a hold decided after this one has reached the robot
_STATUS_S = 0.5
_OTHER_OPERATOR = "another operator drives: one of them has to stop for a quarter of a second"
_AGAIN_S = 5.0  # interval between two reports of a fault of the states
# A stamp that controllers take as "now". Any other is compared with their own clock, which may be a
# simulator's or another machine's: a trajectory in its past is refused, one in its future waits. The filter
# is the only sender, so robots follow the order of receipt, which DDS keeps.
NOW_S = 0.0


class SafetyFilterNode:
    """ArmFilter on a bus: ~/arm and ~/stop, `command/raw` and `teleop/...` in, `command/safe` out."""

    def __init__(
        self, bus: Bus, robot: RobotDescription, arm: bool = False, say: Callable[[str], None] = print
    ) -> None:
        look_s = 1.0 / watchdog_hz(robot)
        self.filter = ArmFilter(robot, look_s=_ON_THE_WAY * look_s)
        self._bus, self._robot, self._say = bus, robot, say
        self._drops = DropReporter(bus.name, say)
        self._fault_reported_s = -math.inf  # last report of a fault of the states
        self._reported = Phase.DISARMED, self.filter.reason
        self._send = SAFE.publisher(bus)
        self._own = OwnStatus(bus, SAFETY_STATE, hardware_id=robot.name)
        JOINT_STATES.subscribe(bus, self._on_state)
        RAW.subscribe(bus, lambda m, at: self._on_command(m, "policy", at))
        TELEOP.subscribe(bus, self._on_teleop)
        self._lease = OperatorLease()
        self._velocity, self._clock = VelocityTeleop(robot), SendClock(bus)
        self._subscribe_velocities(bus)
        INTERVENTION.subscribe(bus, self._on_intervention)
        TELEOP_JOINTS.subscribe(bus, self._on_share)
        self._estop = EmergencyStop(bus, self._on_estop, self._on_unheard_estop, say)
        self._auto_arm = AutoArm(bus, arm, self._estop, self._arm)
        bus.service("~/arm", self._arm)
        bus.service("~/stop", self._stop)
        self._lifecycle = manage(bus, self._arm, self._stop)
        # Its own command/safe counts as well: a second sender there moves the robot past this filter.
        sole: dict[Topic[Any], int] = dict.fromkeys((RAW, TELEOP, JOINT_JOG, TWIST, SAFE), 1)
        SolePublishers(bus, sole | {JOINT_STATES: robot.state_publishers}, self._on_two_publishers)
        bus.timer(look_s, self._look)
        bus.timer(_STATUS_S, self._report)

    def stop(self, why: str) -> str:
        """Brake and fall silent."""
        self._auto_arm.cancel()
        moved = self.filter.phase is not Phase.DISARMED
        self._own.leave(why)
        self.filter.stop(Reason.SHUTDOWN)
        self._tick()
        self._report()
        ends = "braking, then silent" if moved else "nothing was being sent"
        return f"{why}: {last_account(ends, self.filter.counts)}"

    @property
    def at_rest(self) -> bool:
        return self.filter.phase is Phase.DISARMED

    def finish(self) -> None:
        """Hold the last position, without time to brake."""
        self._publish(self.filter.finish())

    def _on_state(self, message: JointState, received_s: float) -> None:
        self.filter.on_state(message, received_s)
        if self.filter.fault and received_s - self._fault_reported_s > _AGAIN_S:
            self._fault_reported_s = received_s
            self._say(f"{self._bus.name}: {self.filter.fault}. Such a state is dropped.")
        self._auto_arm.attempt()

    def _on_command(self, message: JointTrajectory, source: Source, received_s: float) -> None:
        if self.filter.on_command(message, source, received_s):
            self._tick()
        else:
            reason, numbers = self.filter.dropped, ""
            if reason is Reason.JUMP_AT_START:
                numbers = jump_words(self.filter.robot, message, self.filter.measured_rad)
            self._drops.tell(source, reason, received_s, numbers)

    def _on_teleop(self, message: JointTrajectory, received_s: float) -> None:
        if self.filter.drives("teleop") and not self._lease.grants(TELEOP.name, received_s):
            self._drops.tell_sentence(f"a message on {TELEOP.name}", _OTHER_OPERATOR, received_s)
            return
        self._on_command(message, "teleop", received_s)

    def _subscribe_velocities(self, bus: Bus) -> None:
        TWIST.subscribe(bus, self._on_velocity)
        try:
            JOINT_JOG.subscribe(bus, self._on_velocity)
        except MissingDependencyError as error:
            self._say(f"{bus.name}: {JOINT_JOG.name} is not subscribed. {error}")

    def _on_velocity(self, message: JointJog | Twist, received_s: float) -> None:
        topic = JOINT_JOG if isinstance(message, JointJog) else TWIST
        fault = self._velocity.take(message, received_s)
        if not fault and not self.filter.drives("teleop"):
            fault = Reason.NOT_INTERVENING.sentence
        elif not fault and not self._lease.grants(TWIST.name, received_s):
            fault = _OTHER_OPERATOR
            self._velocity.release()
        self._drops.tell_sentence(f"a message on {topic.name}", fault, received_s)

    def _follow_velocity(self) -> None:
        """Command the next position of a human's jog or twist while it comes and the human intervenes."""
        measured_rad, robot = self.filter.start_rad, self._robot
        drives = self.filter.drives("teleop") and self.filter.phase is Phase.ARMED
        if measured_rad is None or not drives:
            self._velocity.release()
        elif (
            next_rad := self._velocity.next(measured_rad, self._bus.now(), self.filter.human_joints)
        ) is not None:
            period_s, stamp_s = np.array([1.0 / robot.command_hz]), self._clock.stamp()
            command = JointTrajectory(stamp_s, robot.names, next_rad[None], period_s, robot.frame_id)
            self._on_command(command, "teleop", self._bus.now())

    def _on_intervention(self, message: Flag, received_s: float) -> None:
        self.filter.on_intervention(message.on)
        if not message.on:
            self._lease.release()
        self._tick()

    def _on_share(self, message: Text, received_s: float) -> None:
        try:
            self.filter.on_share([name for name in message.text.split("+") if name])
        except ConfigError as error:
            reason = str(error).rstrip(".")
            self._drops.tell_sentence(f"a message on {TELEOP_JOINTS.name}", reason, received_s)
            return
        self._tick()

    def _on_estop(self, message: Flag, received_s: float) -> None:
        if message.on:
            self._auto_arm.cancel()  # releasing the stop does not arm
        self.filter.on_emergency(message.on)
        self._tick()

    def _on_unheard_estop(self) -> None:
        self._auto_arm.cancel()
        self.filter.stop(Reason.EMERGENCY_UNHEARD)
        self._tick()

    def _on_two_publishers(self, sentence: str) -> None:
        if sentence:
            self._auto_arm.cancel()  # the end of the second publisher does not arm
            self._say(f"{self._bus.name}: {sentence}.")
        self.filter.on_two_publishers(sentence)

    def _arm(self) -> Answer:
        if self._lifecycle.finalized:
            return False, FINALIZED
        self._velocity.forget_stamps()
        return self._estop.explained(self.filter.arm(self._bus.now()))

    def _stop(self) -> Answer:
        self._auto_arm.cancel()
        answer = self.filter.stop(Reason.REQUESTED)
        self._tick()
        return answer

    def _look(self) -> None:
        self._follow_velocity()
        self._tick()

    def _tick(self) -> None:
        self._publish(self.filter.tick(self._bus.now()))
        if (self.filter.phase, self.filter.reason) != self._reported:
            self._report()

    def _publish(self, position_rad: Float[ndarray, " j"] | None) -> None:
        if position_rad is None:
            return
        period_s = np.array([1.0 / self._robot.command_hz])
        robot = self._robot
        self._send(JointTrajectory(NOW_S, robot.names, position_rad[None], period_s, robot.frame_id))

    def _report(self) -> None:
        """Publish phase, reason and counts."""
        filter_ = self.filter
        self._reported = filter_.phase, filter_.reason
        self._lifecycle.report(filter_.phase is Phase.ARMED)
        follows = filter_.phase is Phase.ARMED and filter_.reason is None
        level = 0 if follows else 1 if filter_.phase is Phase.ARMED else 2
        whom = " and ".join(filter_.followed) or filter_.source
        sentence = f"following {whom}" if filter_.reason is None else filter_.reason.sentence
        if filter_.reason is Reason.SECOND_PUBLISHER and filter_.publisher_conflict:
            sentence = filter_.publisher_conflict
        sentence = self._estop.refused or sentence
        if filter_.phase is not Phase.ARMED:
            sentence = unarmed(self._bus.name, sentence)
        values = {reason.name.lower(): str(count) for reason, count in filter_.counts.items()}
        orderly = filter_.reason in (Reason.SHUTDOWN, Reason.NOT_ARMED)
        self._own.tell(level, sentence, {"phase": filter_.phase.value} | values, orderly)


def watchdog_hz(robot: RobotDescription) -> float:
    """Two ticks per command; five per state, within `WATCHDOG_HZ`."""
    least, most = WATCHDOG_HZ
    return max(least, 2.0 * robot.command_hz, min(5.0 * robot.state_hz, most))
