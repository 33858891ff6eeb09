"""The safety filter's node of an arm: the only sender to the robot."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy import ndarray

from hardware.bus.lifecycle import FINALIZED, manage
from hardware.bus.protocol import Answer, Bus
from hardware.description import RobotDescription
from hardware.messages import Flag, JointState, JointTrajectory
from hardware.nodes.shared.dropped import DropTeller
from hardware.nodes.shared.filter_watch import unarmed
from hardware.nodes.shared.own_status import OwnStatus
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.command_acceptance import Source
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason, last_account
from hardware.topics import ESTOP, INTERVENTION, JOINT_STATES, RAW, SAFE, SAFETY_STATE, TELEOP
from robo_rl.core.shapes import Float

WATCHDOG_HZ = (
    200.0,
    500.0,
)  # least rate of ticks, and the most that a high state rate leads to
_ON_THE_WAY = 1.5  # ticks until a hold decided after this one has reached the robot
_STATUS_S = 0.5
_AGAIN_S = 5.0  # interval between two reports of a fault of the states
# A stamp that controllers take as "now". Any other is compared with their own clock, which may be a
# simulator's or another machine's: a trajectory in its past is refused, one in its future waits.
NOW_S = 0.0


class SafetyFilterNode:
    """ArmFilter on a bus: ~/arm and ~/stop, `command/raw` and `teleop/command` in, `command/safe` out."""

    def __init__(
        self, bus: Bus, robot: RobotDescription, arm: bool = False, say: Callable[[str], None] = print
    ) -> None:
        look_s = 1.0 / watchdog_hz(robot)
        self.filter = ArmFilter(robot, look_s=_ON_THE_WAY * look_s)
        self._bus, self._robot, self._arm_when_ready, self._say = bus, robot, arm, say
        self._drops = DropTeller(bus.name, say)
        self._fault_reported_s = -math.inf  # last report of a fault of the states
        self._sequence, self._reported = 0, (Phase.DISARMED, self.filter.reason)
        self._send = SAFE.publisher(bus)
        self._own = OwnStatus(bus, SAFETY_STATE)
        JOINT_STATES.subscribe(bus, self._on_state)
        RAW.subscribe(bus, lambda m, at: self._on_command(m, "policy", at))
        TELEOP.subscribe(bus, lambda m, at: self._on_command(m, "teleop", at))
        INTERVENTION.subscribe(bus, self._on_intervention)
        ESTOP.subscribe(bus, self._on_estop)
        bus.service("~/arm", self._arm)
        bus.service("~/stop", self._stop)
        self._lifecycle = manage(bus, self._arm, self._stop)
        bus.timer(look_s, self._tick)
        bus.timer(_STATUS_S, self._report)

    def stop(self, why: str) -> str:
        """Brake and fall silent."""
        self._arm_when_ready = False
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

    def last_word(self) -> None:
        """Hold the last position, without time to brake."""
        self._publish(self.filter.last_word())

    def _on_state(self, message: JointState, received_s: float) -> None:
        self.filter.on_state(message, received_s)
        if self.filter.fault and received_s - self._fault_reported_s > _AGAIN_S:
            self._fault_reported_s = received_s
            self._say(f"{self._bus.name}: {self.filter.fault}. Such a state is not taken.")
        if self._arm_when_ready and self._arm()[0]:
            self._arm_when_ready = False

    def _on_command(self, message: JointTrajectory, source: Source, received_s: float) -> None:
        if self.filter.on_command(message, source, received_s):
            self._tick()
        else:
            self._drops.tell(source, self.filter.dropped, received_s)

    def _on_intervention(self, message: Flag, received_s: float) -> None:
        self.filter.on_intervention(message.on)
        self._tick()

    def _on_estop(self, message: Flag, received_s: float) -> None:
        self._arm_when_ready &= not message.on  # releasing the stop does not arm
        self.filter.on_emergency(message.on)
        self._tick()

    def _arm(self) -> Answer:
        if self._lifecycle.finalized:
            return False, FINALIZED
        return self.filter.arm(self._bus.now())

    def _stop(self) -> Answer:
        self._arm_when_ready = False
        answer = self.filter.stop(Reason.REQUESTED)
        self._tick()
        return answer

    def _tick(self) -> None:
        self._publish(self.filter.tick(self._bus.now()))
        if (self.filter.phase, self.filter.reason) != self._reported:
            self._report()

    def _publish(self, position_rad: Float[ndarray, " j"] | None) -> None:
        if position_rad is None:
            return
        period_s = np.array([1.0 / self._robot.command_hz])
        self._send(JointTrajectory(NOW_S, self._robot.names, position_rad[None], period_s, 0, self._sequence))
        self._sequence += 1

    def _report(self) -> None:
        """Publish phase, reason and counts."""
        filter_ = self.filter
        self._reported = filter_.phase, filter_.reason
        self._lifecycle.report(filter_.phase is Phase.ARMED)
        follows = filter_.phase is Phase.ARMED and filter_.reason is None
        level = 0 if follows else 1 if filter_.phase is Phase.ARMED else 2
        sentence = f"following {filter_.source}" if filter_.reason is None else filter_.reason.sentence
        if filter_.phase is not Phase.ARMED:
            sentence = unarmed(self._bus.name, sentence)
        values = {reason.name.lower(): str(count) for reason, count in filter_.counts.items()}
        orderly = filter_.reason in (Reason.SHUTDOWN, Reason.NOT_ARMED)
        self._own.tell(level, sentence, {"phase": filter_.phase.value} | values, orderly)


def watchdog_hz(robot: RobotDescription) -> float:
    """Two ticks per command; five per state, within `WATCHDOG_HZ`."""
    least, most = WATCHDOG_HZ
    return max(least, 2.0 * robot.command_hz, min(5.0 * robot.state_hz, most))
