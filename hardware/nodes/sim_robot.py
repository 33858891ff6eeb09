"""A simulated arm or quadcopter as a robot on the bus.

The simulator is an argument: nothing here imports one.
"""

from __future__ import annotations

import json
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy import ndarray

from hardware.arms.bounds import CommandLimiter, JointLimits
from hardware.bus.protocol import Answer, Bus
from hardware.description import RobotDescription
from hardware.driver import PERIODS, WATCHDOG_S
from hardware.messages import FlightCommand, JointState, JointTrajectory, Odometry, Text
from hardware.nodes.shared.own_status import OwnStatus
from hardware.nodes.shared.sole_publishers import SolePublishers
from hardware.nodes.shared.waypoint import last_waypoint
from hardware.states import JointCommand
from hardware.topics import FLIGHT_SAFE, JOINT_STATES, LOOP_STATUS, ODOM, SAFE, SCENE
from robo_rl.core.errors import DriverError
from robo_rl.core.shapes import Float

HOLDS = "no command came, so the arm holds by itself"
_STATUS_S = 0.5


@runtime_checkable
class SimArm(Protocol):
    """An arm under position control in a simulator."""

    names: tuple[str, ...]

    def reset(self) -> None:
        """Go to the start, at rest."""
        ...

    def read(self) -> tuple[Float[ndarray, " j"], Float[ndarray, " j"]]:
        """(position [rad], velocity [rad/s]) now."""
        ...

    def command(self, position_rad: Float[ndarray, " j"]) -> None:
        """Set the target of its servos."""
        ...

    def advance(self, dt_s: float) -> None: ...


@runtime_checkable
class Drawable(Protocol):
    """A simulated arm that tells the shapes of its scene."""

    def shapes(self) -> list[dict[str, Any]]:
        """Shapes as they are now, for JSON."""
        ...


@runtime_checkable
class SimQuad(Protocol):
    """A quadcopter in a simulator."""

    def reset(self) -> None: ...

    def read(self, stamp_s: float) -> Odometry: ...

    def command(self, values: Float[ndarray, " 4"]) -> None:
        """Four motor commands in [-1, 1], held until the next."""
        ...

    def advance(self, dt_s: float) -> None: ...


class SimArmNode:
    """`command/safe` in, `joint_states` out, at `state_hz`; its servos hold when no command comes.

    robot: the description whose ranges and speeds bound every command. While command/safe has two publishers
    the arm holds. Raises ConfigError where the description lacks a joint.
    """

    def __init__(self, bus: Bus, arm: SimArm, state_hz: float, robot: RobotDescription) -> None:
        self._bus, self._arm, self._period_s, self._frame = bus, arm, 1.0 / state_hz, robot.frame_id
        self._commanded_s: float | None = None  # None: not since it last held
        self._status = 0, "waits for commands"
        self.holds = 0  # times that the watchdog fired
        self._tell, self._own = JOINT_STATES.publisher(bus), OwnStatus(bus, LOOP_STATUS)
        limits = JointLimits.of(robot, arm.names)
        self._tell_scene = SCENE.publisher(bus) if isinstance(arm, Drawable) else None
        self._draw()
        self._limiter = CommandLimiter("the simulated arm", limits, robot.command_hz, bus.now)
        # Without a command for this long the arm holds by itself, as a real one.
        self._watchdog_s = max(WATCHDOG_S, PERIODS / robot.command_hz)
        SAFE.subscribe(bus, self._on_command)
        self._sole = SolePublishers(bus, {SAFE: 1}, self._on_two_publishers)
        bus.service("~/reset", self._reset)
        bus.timer(self._period_s, self._tick)
        bus.timer(_STATUS_S, self._report)

    def stop(self, why: str) -> str:
        """Return the closing sentence; a simulator rests when it is not stepped."""
        self._own.leave(why)
        self._report()
        return f"{why}: the simulation ends"

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """Do nothing."""

    def _report(self) -> None:
        level, sentence = self._status
        self._own.tell(level, sentence, {"holds": str(self.holds)})

    def _on_command(self, message: JointTrajectory, received_s: float) -> None:
        if self._sole.publisher_conflict:
            return
        try:
            command = JointCommand(last_waypoint(message, self._arm.names))
            self._arm.command(self._limiter.next(command, self._arm.read()[0]))
        except DriverError as error:
            self._status = 2, str(error)
            return
        self._commanded_s, self._status = received_s, (0, "commanded")

    def _on_two_publishers(self, sentence: str) -> None:
        if sentence:
            self._hold()
        self._status = (2, sentence) if sentence else (0, "waits for commands")
        self._report()

    def _hold(self) -> None:
        """Stay where the arm is; the next command starts from there."""
        self._arm.command(self._arm.read()[0])
        self._commanded_s = None
        self._limiter.reset()

    def _reset(self) -> Answer:
        self._arm.reset()
        self._commanded_s = None
        self._limiter.reset()
        self._draw()
        return True, "at its start"

    def _draw(self) -> None:
        """Tell viewers the shapes; a reset moves those of the scene."""
        if self._tell_scene is not None and isinstance(self._arm, Drawable):
            self._tell_scene(Text(json.dumps(self._arm.shapes())))

    def _tick(self) -> None:
        if self._commanded_s is not None and self._bus.now() - self._commanded_s > self._watchdog_s:
            self._hold()
            self.holds += 1
            self._status = 1, HOLDS
            self._report()
        self._arm.advance(self._period_s)
        position, velocity = self._arm.read()
        stamp_s = self._bus.stamp()
        self._tell(JointState(stamp_s, self._arm.names, position, velocity, frame=self._frame))


class SimQuadNode:
    """`flight/safe` in, `odom` out. While flight/safe has two publishers the craft keeps its last command."""

    def __init__(self, bus: Bus, quad: SimQuad, state_hz: float) -> None:
        self._bus, self._quad, self._period_s = bus, quad, 1.0 / state_hz
        self._tell = ODOM.publisher(bus)
        FLIGHT_SAFE.subscribe(bus, self._on_command)
        self._sole = SolePublishers(bus, {FLIGHT_SAFE: 1}, self._on_two_publishers)
        bus.service("~/reset", self._reset)
        bus.timer(self._period_s, self._tick)

    def stop(self, why: str) -> str:
        """Return the closing sentence; a simulator rests when it is not stepped."""
        return f"{why}: the simulation ends"

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """Do nothing."""

    def _on_command(self, message: FlightCommand, received_s: float) -> None:
        values = np.asarray(message.values, dtype=np.float64)
        if values.shape == (4,) and np.isfinite(values).all() and not self._sole.publisher_conflict:
            self._quad.command(values)

    def _on_two_publishers(self, sentence: str) -> None:
        if sentence:
            print(f"{self._bus.name}: {sentence}.", flush=True)

    def _reset(self) -> Answer:
        self._quad.reset()
        return True, "at its start"

    def _tick(self) -> None:
        self._quad.advance(self._period_s)
        self._tell(self._quad.read(self._bus.stamp()))
