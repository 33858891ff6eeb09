"""The safety filter's node of a quadcopter: the only sender to the craft."""

from __future__ import annotations

import math
from collections.abc import Callable

from numpy import ndarray

from hardware.bus.lifecycle import FINALIZED, manage
from hardware.bus.protocol import Answer, Bus
from hardware.messages import MOTORS, RATES, Flag, FlightCommand, Odometry
from hardware.nodes.shared.auto_arm import AutoArm
from hardware.nodes.shared.dropped import DropReporter
from hardware.nodes.shared.emergency_stop import EmergencyStop
from hardware.nodes.shared.filter_watch import unarmed
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.send_clock import SendClock
from hardware.nodes.shared.sole_publishers import SolePublishers
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.reasons import Reason, last_account
from hardware.topics import FLIGHT_RAW, FLIGHT_SAFE, ODOM, SAFETY_STATE
from robo_rl.core.shapes import Float

_STATUS_S = 0.5
_REPEATS = 2  # of a new status, one per tick: the policy begins its flight by it, and one message may be lost
_ORDERLY = (Reason.LAND_SHUTDOWN, Reason.LANDED, Reason.NOT_ARMED)  # in a node that ends
_AGAIN_S = 5.0  # interval between two reports of a fault of the states
_EARLY = 0.75  # share of a period after a command within which the timer sends none
_LATE = 1.25  # periods after a command of the policy from which the timer repeats it


class FlightFilterNode:
    """FlightFilter on a bus: ~/arm and ~/stop (land), `flight/raw` in, `flight/safe` out."""

    def __init__(
        self,
        bus: Bus,
        filter_: FlightFilter,
        command_hz: float,
        arm: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        self.filter, self._bus, self._period_s = filter_, bus, 1.0 / command_hz
        self._sent_s = self._passed_s = -math.inf  # any command; the last one of the policy
        self._clock, self._say = SendClock(bus), say
        self._drops = DropReporter(bus.name, say)
        self._fault_reported_s = -math.inf  # last report of a fault of the states
        self._reported, self._repeats = (filter_.phase, filter_.reason), 0
        self._send, self._own = FLIGHT_SAFE.publisher(bus), OwnStatus(bus, SAFETY_STATE)
        ODOM.subscribe(bus, self._on_state)
        FLIGHT_RAW.subscribe(bus, self._on_command)
        self._estop = EmergencyStop(bus, self._on_estop, self._on_unheard_estop, say)
        self._auto_arm = AutoArm(bus, arm, self._estop, self._arm)
        bus.service("~/arm", self._arm)
        bus.service("~/stop", self._stop)
        self._lifecycle = manage(bus, self._arm, self._stop)
        SolePublishers(bus, {ODOM: 1, FLIGHT_RAW: 1, FLIGHT_SAFE: 1}, self._on_two_publishers)
        bus.timer(self._period_s, self._on_timer)
        bus.timer(_STATUS_S, self._report)

    def stop(self, why: str) -> str:
        """Land, then fall silent."""
        self._auto_arm.cancel()
        self._own.leave(why)
        self.filter.stop(Reason.LAND_SHUTDOWN)
        self._report()
        flies = self.filter.phase is not FlightPhase.DISARMED
        ends = "landing, then motors off" if flies else "nothing was being sent"
        return f"{why}: {last_account(ends, self.filter.counts)}"

    @property
    def at_rest(self) -> bool:
        return self.filter.phase is FlightPhase.DISARMED

    def finish(self) -> None:
        """Switch the motors off."""
        self._publish(self.filter.finish())

    def _on_state(self, message: Odometry, received_s: float) -> None:
        self.filter.on_state(message, received_s)
        if self.filter.fault and received_s - self._fault_reported_s > _AGAIN_S:
            self._fault_reported_s = received_s
            self._say(f"{self._bus.name}: {self.filter.fault}. Such a state is dropped.")
        self._auto_arm.attempt()

    def _on_command(self, message: FlightCommand, received_s: float) -> None:
        if self.filter.on_command(message, received_s):
            self._passed_s = received_s
            self._tick()
        else:
            self._drops.tell("the policy", self.filter.dropped, received_s)

    def _on_estop(self, message: Flag, received_s: float) -> None:
        if message.on:
            self._auto_arm.cancel()  # releasing the stop does not arm
        self.filter.on_emergency(message.on)
        self._tick()

    def _on_unheard_estop(self) -> None:
        self._auto_arm.cancel()
        self.filter.stop(Reason.FLIGHT_EMERGENCY_UNHEARD)
        self._tick()

    def _on_two_publishers(self, sentence: str) -> None:
        if sentence:
            self._auto_arm.cancel()  # the end of the second publisher does not arm
            self._say(f"{self._bus.name}: {sentence}.")
        self.filter.on_two_publishers(sentence)

    def _arm(self) -> Answer:
        if self._lifecycle.finalized:
            return False, FINALIZED
        return self._estop.explained(self.filter.arm(self._bus.now()))

    def _stop(self) -> Answer:
        self._auto_arm.cancel()
        return self.filter.stop()

    def _on_timer(self) -> None:
        now_s = self._bus.now()
        late = now_s - self._passed_s >= _LATE * self._period_s
        if late and now_s - self._sent_s >= _EARLY * self._period_s:
            self._tick()

    def _tick(self) -> None:
        self._publish(self.filter.tick(self._bus.now()))
        changed = (self.filter.phase, self.filter.reason) != self._reported
        if changed or self._repeats:
            self._repeats -= 1
            self._report()

    def _publish(self, values: Float[ndarray, " 4"] | None) -> None:
        if values is not None:
            self._sent_s = self._bus.now()
            names = MOTORS if self.filter.level == "motors" else RATES
            self._send(FlightCommand(self._clock.stamp(), values, names))

    def _report(self) -> None:
        filter_ = self.filter
        if (new := (filter_.phase, filter_.reason)) != self._reported:
            self._reported, self._repeats = new, _REPEATS
        flies = filter_.phase is FlightPhase.FLYING
        self._lifecycle.report(flies)
        sentence = filter_.reason.sentence if filter_.reason else "flying inside the envelope"
        if filter_.reason is Reason.FLIGHT_SECOND_PUBLISHER and filter_.publisher_conflict:
            sentence = filter_.publisher_conflict
        sentence = self._estop.refused or sentence
        if not flies:
            sentence = unarmed(self._bus.name, sentence)
        values = {reason.name.lower(): str(count) for reason, count in filter_.counts.items()}
        orderly = filter_.reason in _ORDERLY
        self._own.tell(0 if flies else 2, sentence, {"phase": filter_.phase.value} | values, orderly)
