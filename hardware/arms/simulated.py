"""A simulated arm behind the shape of a driver, so that filter, nodes and tests drive it like a real one.

It is handed the robot, because hardware imports no simulator. Guard: none; what is not stepped does not move.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hardware.arms.bounds import Bounded, JointLimits
from hardware.driver import WATCHDOG_S
from hardware.nodes.sim_robot import SimArm
from hardware.states import ArmState, JointCommand
from robo_rl.core.errors import DriverError


class SimulatedArmDriver:
    """robot: the simulated arm, which somebody else steps. clock: the simulator's own, in virtual time."""

    def __init__(
        self,
        robot: SimArm,
        limits: JointLimits,
        rate_hz: float = 100.0,
        watchdog_s: float = WATCHDOG_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._robot, self._clock, self._watchdog_s = robot, clock, watchdog_s
        self._bounded = Bounded("the simulated arm", limits, rate_hz, clock)
        self._open, self._deadline_s = False, float("inf")

    @property
    def names(self) -> tuple[str, ...]:
        return self._robot.names

    def connect(self) -> None:
        self._bounded.reset()
        self._open, self._deadline_s = True, float("inf")

    def read(self) -> ArmState:
        self._watch()
        position_rad, velocity_rad_s = self._robot.read()
        return ArmState(self._clock(), position_rad, velocity_rad_s)

    def write(self, command: JointCommand) -> JointCommand:
        self._watch()
        if not self._open:
            raise DriverError(
                "The simulated arm was stopped or is not connected. Connect to go on. Nothing was sent."
            )
        target_rad = self._bounded.next(command, self._robot.read()[0])
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
        """Late commands stop it as they stop a real one, seen at the next call: nothing else runs in virtual
        time.
        """
        if self._open and self._clock() > self._deadline_s:
            self.stop("no command came in time")
