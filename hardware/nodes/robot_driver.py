"""A driver on the bus: an arm with `command/safe` and `joint_states`, or a quadcopter with `flight/safe` and
`odom`.

A state is published once, so that a state that no longer arrives looks old to its readers. When commands
stop, the driver's own watchdog stops the robot; it accepts commands again after ~/connect. A command that
waited for longer than the watchdog's time while the driver connected is dropped. While the topic of commands
has two publishers, the robot is stopped and nothing connects it. Commands of an arm are bounded by the
robot's description, whoever sent them.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from hardware.arms.bounds import CommandLimiter, JointLimits
from hardware.bus.lifecycle import FINALIZED, manage
from hardware.bus.protocol import Answer, Bus
from hardware.description import RobotDescription
from hardware.driver import WATCHDOG_S, ArmDriver, Driver, QuadDriver
from hardware.messages import FlightCommand, JointState, JointTrajectory, Odometry
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.sole_publishers import SolePublishers
from hardware.nodes.shared.waypoint import last_waypoint
from hardware.quads.bounds import refuse_motors
from hardware.states import ArmState, BodyRates, JointCommand, MotorCommand, QuadState
from hardware.topic import Topic
from hardware.topics import DRIVER_STATUS, FLIGHT_SAFE, JOINT_STATES, ODOM, SAFE
from robo_rl.core.errors import DriverError
from robo_rl.core.flight.frames import rotation_of

STATUS_S = 0.5
STOPPED = "stopped by its service or lifecycle; it accepts commands again after ~/connect"
S = TypeVar("S", ArmState, QuadState)


def print_line(sentence: str) -> None:
    print(f"robot_driver: {sentence}", file=sys.stderr, flush=True)


class _DriverNode(ABC, Generic[S]):
    """Common part of both kinds: reading, status, connecting again, coming to rest."""

    def __init__(
        self,
        bus: Bus,
        driver: Driver[Any, Any],
        state_hz: float,
        say: Callable[[str], None],
        commands: Topic[Any],
    ) -> None:
        driver.connect()
        self._bus, self._driver, self._say = bus, driver, say
        self._fault, self._newest_s, self._resting, self._closed = "", -np.inf, True, False
        self._robot_fault = ""  # of the robot itself, in its newest state
        self._own = OwnStatus(bus, DRIVER_STATUS)
        bus.service("~/connect", self._connect)
        bus.service("~/stop", self._stop)
        self._lifecycle = manage(bus, self._connect, self._stop)
        self._sole = SolePublishers(bus, {commands: 1}, self._on_two_publishers)
        bus.timer(1.0 / state_hz, self._read)
        bus.timer(STATUS_S, self._report)

    def stop(self, why: str) -> str:
        """Hold, or land."""
        self._driver.stop(why)
        self._fault = f"stopped: {why}"
        self._own.leave(why)
        self._report()
        return f"{why}: the robot comes to rest"

    @property
    def at_rest(self) -> bool:
        return self._resting

    def finish(self) -> None:
        """Stop, and wait for the end of a landing, which needs this process's radio."""
        if not self._closed:
            self._closed = True
            try:
                self._driver.stop("the node ends")
            finally:
                self._driver.close()

    def _write(self, command: Any, received_s: float) -> None:
        if self._fault or self._bus.now() - received_s > WATCHDOG_S:
            return
        try:
            self._driver.write(self._bounded(command))
        except DriverError as error:
            self._fail(error)

    def _bounded(self, command: Any) -> Any:
        """The command within the limits of the robot's description, where there is one."""
        return command

    def _read(self) -> None:
        if self._closed:
            return
        try:
            state: S = self._driver.read()
        except DriverError as error:
            self._fail(error)
            return
        self._resting = self._is_resting(state)
        self._watch_robot(state.fault)
        if state.received_s > self._newest_s:
            self._newest_s = state.received_s
            # Stamped with the time of capture, not of publishing.
            self._publish(state, self._bus.stamp() - max(0.0, self._bus.now() - state.received_s))

    @abstractmethod
    def _publish(self, state: S, stamp_s: float) -> None: ...

    def _is_resting(self, state: S) -> bool:
        return True

    def _fail(self, error: DriverError) -> None:
        """Report a failure once; nothing is sent until ~/connect."""
        if str(error) != self._fault:
            self._fault = str(error)
            self._say(self._fault)
            self._report()

    def _watch_robot(self, fault: str) -> None:
        """Report a fault of the robot itself, such as its emergency stop, as long as its states have it."""
        if fault == self._robot_fault:
            return
        self._robot_fault = fault
        if fault and not self._fault:
            self._say(f"{fault}.")
        self._report()

    def _on_two_publishers(self, sentence: str) -> None:
        if sentence:
            self._fail(DriverError(sentence))
            try:
                self._driver.stop("two publishers of commands")
            except DriverError as error:
                self._say(str(error))

    def _stop(self) -> Answer:
        """Hold, or land, until ~/connect."""
        self._driver.stop(STOPPED)
        self._fault = STOPPED
        self._report()
        return True, STOPPED

    def _connect(self) -> Answer:
        if self._lifecycle.finalized:
            return False, FINALIZED
        if self._sole.publisher_conflict:
            return False, self._sole.publisher_conflict
        try:
            self._driver.connect()
        except DriverError as error:
            self._fail(error)
            return False, str(error)
        self._fault = ""
        self._begin()
        self._report()
        return True, "connected"

    def _begin(self) -> None:
        """Called after each connection."""

    def _report(self) -> None:
        self._lifecycle.report(not self._fault)
        fault = self._fault or self._robot_fault
        self._own.tell(2 if fault else 0, fault or "follows commands")


class ArmDriverNode(_DriverNode[ArmState]):
    """`command/safe` in, `joint_states` out; joints are found by name.

    robot: the description whose ranges and speeds bound every command, beside the limits of the driver's
    device. Raises ConfigError where it lacks a joint of the driver.
    """

    def __init__(
        self,
        bus: Bus,
        driver: ArmDriver,
        state_hz: float,
        robot: RobotDescription,
        say: Callable[[str], None] = print_line,
    ) -> None:
        super().__init__(bus, driver, state_hz, say, SAFE)
        self._names, self._frame = driver.names, robot.frame_id  # names are known once it is connected
        limits = JointLimits.of(robot, self._names)
        self._limiter = CommandLimiter(f"'{robot.name}'", limits, robot.command_hz, bus.now)
        self._tell = JOINT_STATES.publisher(bus)
        SAFE.subscribe(bus, self._on_command)

    def _on_command(self, message: JointTrajectory, received_s: float) -> None:
        try:
            position_rad = last_waypoint(message, self._names)
        except DriverError as error:
            self._fail(error)
            return
        self._write(JointCommand(position_rad), received_s)

    def _bounded(self, command: JointCommand) -> JointCommand:
        return JointCommand(self._limiter.next(command, self._driver.read().position_rad))

    def _begin(self) -> None:
        self._limiter.reset()

    def _publish(self, state: ArmState, stamp_s: float) -> None:
        position_rad, velocity_rad_s = state.position_rad, state.velocity_rad_s
        self._tell(JointState(stamp_s, self._names, position_rad, velocity_rad_s, frame=self._frame))


class QuadDriverNode(_DriverNode[QuadState]):
    """`flight/safe` in, thrust and body rates; `odom` out. level: content of flight/safe, "rates" or
    "motors".

    ground_m: height in `odom` of the autopilot's height 0, so that a craft can hover above its start while
    the task stays around the origin.
    """

    def __init__(
        self, bus: Bus, driver: QuadDriver, state_hz: float, level: str, ground_m: float = 0.0,
        say: Callable[[str], None] = print_line,
    ) -> None:  # fmt: skip
        if level == "motors":
            refuse_motors(MotorCommand(np.zeros(4)), "A quadcopter behind a link")
        super().__init__(bus, driver, state_hz, say, FLIGHT_SAFE)
        self._tell, self._shift_m = ODOM.publisher(bus), np.array([0.0, 0.0, ground_m])
        FLIGHT_SAFE.subscribe(bus, self._on_command)

    def _on_command(self, message: FlightCommand, received_s: float) -> None:
        values = np.asarray(message.values, float)
        if values.shape != (4,):
            self._fail(DriverError(f"flight/safe must hold thrust and three rates, found {values.shape}."))
            return
        self._write(BodyRates(values[1:], float(values[0])), received_s)

    def _publish(self, state: QuadState, stamp_s: float) -> None:
        velocity_body = rotation_of(state.quat_wxyz).T @ state.velocity_m_s
        self._tell(
            Odometry(
                stamp_s, state.position_m + self._shift_m, state.quat_wxyz, velocity_body, state.rates_rad_s
            )
        )

    def _is_resting(self, state: QuadState) -> bool:
        return not state.flying
