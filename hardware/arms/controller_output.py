"""Outputs to a controller of ros2_control, for each target of the driver."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from numpy import ndarray

from hardware.arms.waypoint_stream import Waypoints, WaypointStream
from hardware.bus.protocol import TrajectoryAction
from hardware.messages import JointTrajectory
from robo_rl.core.shapes import Float

Joints = Float[ndarray, " j"]
EARLY = 0.95  # share of the period after a message within which no other one is sent


@runtime_checkable
class ControllerOutput(Protocol):
    """One way to command a controller."""

    @property
    def fault(self) -> str:
        """Why the controller takes nothing, without a final full stop; empty while it does."""
        ...

    def reset(self) -> None:
        """Begin at rest, where the arm is."""
        ...

    def send(self, target_rad: Joints, measured_rad: Joints, now_s: float) -> None:
        """Go to the target by the time at which the next one is due."""
        ...

    def rest(self, measured_rad: Joints, now_s: float) -> None:
        """Come to rest."""
        ...


class ForwardOutput:
    """Each target as it is, for a forward_command_controller of positions."""

    fault = ""

    def __init__(self, publish: Callable[[Joints], None]) -> None:
        self._publish = publish

    def reset(self) -> None:
        """Nothing is kept."""

    def send(self, target_rad: Joints, measured_rad: Joints, now_s: float) -> None:
        self._publish(target_rad)

    def rest(self, measured_rad: Joints, now_s: float) -> None:
        """Send nothing: the controller holds the last target.

        The measured position may be old, and lags behind the target by more than one step of a command.
        """


class StreamedOutput:
    """Short trajectories of a `WaypointStream`, every `period_s`. action: sends them as goals."""

    def __init__(
        self,
        names: Sequence[str],
        stream: WaypointStream,
        publish: Callable[[JointTrajectory], None],
        period_s: float = 0.0,
        action: TrajectoryAction | None = None,
    ) -> None:
        self._names, self._stream, self._publish, self._action = tuple(names), stream, publish, action
        self._period_s, self._sent_s = period_s, -math.inf

    @property
    def fault(self) -> str:
        return "" if self._action is None else self._action.fault

    def reset(self) -> None:
        self._stream.reset()
        self._sent_s = -math.inf
        if self._action is not None:
            self._action.reset()

    def send(self, target_rad: Joints, measured_rad: Joints, now_s: float) -> None:
        if now_s - self._sent_s >= EARLY * self._period_s:
            self._sent_s = now_s
            self._tell(self._stream.next(target_rad, measured_rad, now_s))

    def rest(self, measured_rad: Joints, now_s: float) -> None:
        self._tell(self._stream.rest(measured_rad, now_s))

    def _tell(self, points: Waypoints) -> None:
        """Publish with stamp 0, which controllers take as now: their clock may be another one."""
        rows, speeds = points.position_rad, points.velocity_rad_s
        self._publish(JointTrajectory(0.0, self._names, rows, points.times_s, velocity_rad_s=speeds))
