"""Position and velocity limits of an arm's device, applied by the drivers to every command."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.states import JointCommand
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.shapes import Float


@dataclass(frozen=True, slots=True)
class JointLimits:
    """Limits of the device, one entry per joint. Raises ConfigError unless low < high and velocity > 0."""

    low_rad: tuple[float, ...]
    high_rad: tuple[float, ...]
    velocity_rad_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.low_rad) == len(self.high_rad) == len(self.velocity_rad_s):
            raise ConfigError("Joint limits need one low, one high and one velocity per joint.")
        if not all(lo < hi for lo, hi in zip(self.low_rad, self.high_rad, strict=True)):
            raise ConfigError(f"Joint limits need low < high, found {self.low_rad} and {self.high_rad}.")
        if not all(0.0 < v < float("inf") for v in self.velocity_rad_s):
            raise ConfigError(f"Joint velocity limits must be above 0 rad/s, found {self.velocity_rad_s}.")

    @classmethod
    def of(cls, robot: RobotDescription, names: Sequence[str]) -> JointLimits:
        """Limits of the robot's description, ordered as `names`. Raises ConfigError for a missing joint."""
        if missing := [name for name in names if name not in robot.names]:
            raise ConfigError(
                f"The description '{robot.name}' has no joint {', '.join(missing)}; it has "
                f"{', '.join(robot.names)}. Give the description of this robot."
            )
        order = [robot.names.index(name) for name in names]
        low, high, velocity = (robot.column(key)[order] for key in ("low_rad", "high_rad", "velocity_rad_s"))
        return cls(tuple(low), tuple(high), tuple(velocity))


def with_max_velocity(limits: JointLimits, max_velocity_rad_s: float | None) -> JointLimits:
    """The limits, with no velocity above `max_velocity_rad_s`; None keeps the velocities of the device."""
    if max_velocity_rad_s is None:
        return limits
    if not 0.0 < max_velocity_rad_s < float("inf"):
        raise ConfigError(
            f"max_velocity_rad_s={max_velocity_rad_s}: expected a finite velocity above 0 rad/s."
        )
    slower = tuple(min(v, max_velocity_rad_s) for v in limits.velocity_rad_s)
    return JointLimits(limits.low_rad, limits.high_rad, slower)


def bound(
    goal_rad: Float[ndarray, " j"], from_rad: Float[ndarray, " j"], dt_s: float, limits: JointLimits
) -> Float[ndarray, " j"]:
    """from + clip(clip(goal, low, high) - from, +-velocity * dt).

    The step is limited last, so that an arm that starts outside its limits moves back without a jump.
    """
    inside = np.clip(goal_rad, limits.low_rad, limits.high_rad)
    step = np.asarray(limits.velocity_rad_s) * dt_s
    stepped: ndarray = from_rad + np.clip(inside - from_rad, -step, step)
    return stepped


class CommandLimiter:
    """Limits each command to a reachable step from the one before it.

    robot: the device in words, for error messages. rate_hz: of commands, in (0, 1000], else ConfigError.
    """

    def __init__(
        self, robot: str, limits: JointLimits, rate_hz: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not 0.0 < rate_hz <= 1000.0:
            raise ConfigError(f"rate_hz={rate_hz}: expected commands per second in (0, 1000].")
        self._robot, self._limits, self._period_s, self._clock = robot, limits, 1.0 / rate_hz, clock
        self._sent_rad: ndarray | None = None
        self._sent_s = 0.0

    def reset(self) -> None:
        """Let the next command start from the measured position."""
        self._sent_rad = None

    def next(self, command: JointCommand, measured_rad: Float[ndarray, " j"]) -> Float[ndarray, " j"]:
        """The target to send now. A late command may step as far as two periods allow, but no further.

        Raises DriverError for a command of the wrong type or size, or one that is not finite.
        """
        goal_rad = check_command(self._robot, command, len(self._limits.low_rad))
        now_s = self._clock()
        first = self._sent_rad is None
        start_rad = measured_rad if self._sent_rad is None else self._sent_rad
        if not np.isfinite(start_rad).all():
            raise DriverError(
                f"{self._robot} reports a position that is not finite: {start_rad.tolist()}. Nothing was "
                "sent."
            )
        since_s = self._period_s if first else now_s - self._sent_s
        dt_s = min(max(since_s, 0.0), 2.0 * self._period_s)
        self._sent_rad, self._sent_s = bound(goal_rad, start_rad, dt_s, self._limits), now_s
        return self._sent_rad


def check_command(robot: str, command: JointCommand, joints: int) -> Float[ndarray, " j"]:
    """The joint positions of a command [rad].

    Raises DriverError for a command of the wrong type or size, or one that is not finite.
    """
    if not isinstance(command, JointCommand):
        raise DriverError(f"{robot} expects JointCommand, found {type(command).__name__}. Nothing was sent.")
    goal_rad = np.asarray(command.position_rad, float)
    if goal_rad.shape != (joints,):
        raise DriverError(
            f"{robot} has {joints} joints; found a command of shape {goal_rad.shape}. Nothing was sent."
        )
    if not np.isfinite(goal_rad).all():
        raise DriverError(f"A command to {robot} is not finite: {goal_rad.tolist()}. Nothing was sent.")
    return goal_rad


def check_names(robot: str, found: Sequence[str], expected: Sequence[str]) -> list[int]:
    """Index of each expected joint in `found`. Raises DriverError that names the missing joints."""
    if missing := [name for name in expected if name not in found]:
        raise DriverError(
            f"{robot} has no joint {', '.join(missing)}; it reports {', '.join(found) or 'none'}. Check that "
            "it is the robot that the bundle was made for, and that all its controllers are started."
        )
    return [list(found).index(name) for name in expected]
