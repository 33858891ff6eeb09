"""The node between the safety filter and a controller of ros2_control.

It publishes no states: the joint_state_broadcaster does. It waits for the controller, and goes on by itself
after a pause of the filter, each time from where the arm is measured. After a fault of the controller it goes
on after ~/connect. While command/safe has two publishers the arm is at rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from hardware.arms.ros2_control import Ros2ControlDriver
from hardware.bus.protocol import Answer, Bus
from hardware.messages import JointTrajectory
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.sole_publishers import SolePublishers
from hardware.nodes.shared.waypoint import last_waypoint
from hardware.states import JointCommand
from hardware.topics import DRIVER_STATUS, SAFE
from robo_rl.core.errors import DriverError

LOOK_S, STATUS_S = 0.1, 0.5
AGAIN_S = 5.0  # interval between two attempts to connect to a controller that cannot be commanded
WAITS = "waits for joint_states: start the joint_state_broadcaster"


def print_line(sentence: str) -> None:
    print(f"controller_driver: {sentence}", file=sys.stderr, flush=True)


class ControllerDriverNode:
    """`command/safe` in; trajectories, forward commands or goals of the arm's controller out."""

    def __init__(self, bus: Bus, driver: Ros2ControlDriver, say: Callable[[str], None] = print_line) -> None:
        self._bus, self._driver, self._say = bus, driver, say
        self._ready, self._ended, self._fault, self._tried_s = False, False, WAITS, -AGAIN_S
        self._found = ""  # fault that `_check` has found last
        self._own = OwnStatus(bus, DRIVER_STATUS)
        SAFE.subscribe(bus, self._on_command)
        self._sole = SolePublishers(bus, {SAFE: 1}, self._on_two_publishers)
        bus.service("~/connect", self._reconnect)
        bus.timer(LOOK_S, self._look)
        bus.timer(STATUS_S, self._report)

    def stop(self, why: str) -> str:
        """Bring the arm to rest."""
        self._ended = True
        self._driver.stop(why)
        self._own.leave(why)
        self._report()
        return f"{why}: the arm comes to rest"

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """Bring the arm to rest."""
        self._ended = True
        self._driver.close()

    def _look(self) -> None:
        """Connect once states of the arm come, then watch them and the controller."""
        if self._ready and not self._ended:
            self._check()
        if self._ready or self._ended or not self._driver.receives_states:
            return
        if self._bus.now() - self._tried_s >= AGAIN_S:
            self._tried_s = self._bus.now()
            self._connect()

    def _check(self) -> None:
        """Report what keeps the arm from following, also while no commands come."""
        if self._sole.publisher_conflict:
            return
        found = self._driver.refusal or ("" if self._driver.receives_states else self._gone)
        if found or self._fault == self._found:
            self._say_fault(found)
        self._found = found

    @property
    def _gone(self) -> str:
        return f"No {self._driver.missing} come any more, so nothing is sent."

    def _on_two_publishers(self, sentence: str) -> None:
        if sentence:
            self._driver.stop("two publishers of commands")
        self._say_fault(sentence)

    def _reconnect(self) -> Answer:
        if self._sole.publisher_conflict:
            return False, self._sole.publisher_conflict
        if not self._driver.receives_states:
            return False, WAITS
        self._connect()
        return not self._fault, self._fault or "connected"

    def _connect(self) -> None:
        try:
            self._driver.connect()
        except DriverError as error:
            self._say_fault(str(error))
        else:
            self._ready = True
            self._say_fault("")

    def _on_command(self, message: JointTrajectory, received_s: float) -> None:
        if not self._ready or self._ended or self._sole.publisher_conflict:
            return
        try:
            if not self._driver.receives_states:
                raise DriverError(self._gone)
            position_rad = last_waypoint(message, self._driver.names)
            if self._driver.stopped and not self._driver.fault:
                self._driver.connect()
            self._driver.write(JointCommand(position_rad))
        except DriverError as error:
            self._say_fault(str(error))
        else:
            self._say_fault("")

    def _say_fault(self, sentence: str) -> None:
        """Report a fault once when it begins."""
        if sentence != self._fault:
            self._fault = sentence
            if sentence:
                self._say(sentence)
            self._report()

    def _report(self) -> None:
        self._own.tell(2 if self._fault else 0, self._fault or "follows commands")
