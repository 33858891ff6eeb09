"""Driver of the simulated arm, so that the filter, the nodes and tests use it like a real one.

The simulated robot is an argument, because `hardware` does not import simulators. There is no guard process:
a robot that is not stepped does not move.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hardware.arms.bounds import CommandLimiter, JointLimits
from hardware.driver import WATCHDOG_S
from hardware.nodes.sim_robot import SimArm
from hardware.states import ArmState, JointCommand
from robo_rl.core.errors import DriverError


class SimulatedArmDriver:
    """Driver that reads and commands a simulated arm; see `hardware.driver.Driver`.

    robot: the simulated arm, which the caller steps. limits: of the device. rate_hz: of commands.
    clock: the clock of the simulator, in virtual time.
    """

    def __init__(
        self,
        robot: SimArm,
        limits: JointLimits,
        rate_hz: float = 100.0,
        watchdog_s: float = WATCHDOG_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._robot, self._clock, self._watchdog_s = robot, clock, watchdog_s
        self._limiter = CommandLimiter("the simulated arm", limits, rate_hz, clock)
        self._open, self._deadline_s = False, float("inf")

    @property
    def names(self) -> tuple[str, ...]:
        return self._robot.names

    def connect(self) -> None:
        self._limiter.reset()
        self._open, self._deadline_s = True, float("inf")

    def read(self) -> ArmState:
        self._watch()
        position_rad, velocity_rad_s = self._robot.read()
        return ArmState(self._clock(), position_rad, velocity_rad_s)

    def write(self, command: JointCommand) -> JointCommand:
        self._watch()
        if not self._open:
            raise DriverError(
                "The simulated arm was stopped or is not connected. Nothing was sent. Connect, then try "
                "again."
            )
        target_rad = self._limiter.next(command, self._robot.read()[0])
        self._robot.command(target_rad)
        self._deadline_s = self._clock() + self._watchdog_s
        return JointCommand(target_rad)

    def stop(self, reason: str) -> None:
        if self._open and self._deadline_s < float("inf"):
            self._robot.command(self._robot.read()[0])
            self._open = False

    def close(self) -> None:
        self.stop("closed")
        self._open = False

    def _watch(self) -> None:
        """Stop the arm if the last command is too old.

        It is checked at every call, because nothing else runs in virtual time.
        """
        if self._open and self._clock() > self._deadline_s:
            self.stop("no command came in time")
