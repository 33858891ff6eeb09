"""The last bound before an arm: inside its joint limits, and never faster than its joints may turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.states import JointCommand
from robo_rl.core.errors import ConfigError, DriverError


@dataclass(frozen=True, slots=True)
class JointLimits:
    """Limits of the device, one entry per joint."""

    low_rad: tuple[float, ...]
    high_rad: tuple[float, ...]
    velocity_rad_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.low_rad) == len(self.high_rad) == len(self.velocity_rad_s):
            raise ConfigError("Joint limits need one low, one high and one velocity per joint.")
        if not all(lo < hi for lo, hi in zip(self.low_rad, self.high_rad, strict=True)):
            raise ConfigError(f"Joint limits need low < high, found {self.low_rad} and {self.high_rad}.")
        if not all(0.0 < v < float("inf") for v in self.velocity_rad_s):
            raise ConfigError(f"Joint velocities need a limit above 0 rad/s, found {self.velocity_rad_s}.")


def slowed(limits: JointLimits, max_velocity_rad_s: float | None) -> JointLimits:
    """The same limits with this velocity at most; None keeps the device's own."""
    if max_velocity_rad_s is None:
        return limits
    if not 0.0 < max_velocity_rad_s < float("inf"):
        raise ConfigError(
            f"max_velocity_rad_s={max_velocity_rad_s} cannot be used, expected a speed above 0 rad/s."
        )
    slower = tuple(min(v, max_velocity_rad_s) for v in limits.velocity_rad_s)
    return JointLimits(limits.low_rad, limits.high_rad, slower)


def bound(
    goal_rad: Float[ndarray, " j"], from_rad: Float[ndarray, " j"], dt_s: float, limits: JointLimits
) -> Float[ndarray, " j"]:
    """from + clip(goal clipped to the limits - from, +-velocity * dt).

    The step comes last: an arm that wakes up outside of its limits walks back, it never jumps.
    """
    inside = np.clip(goal_rad, limits.low_rad, limits.high_rad)
    step = np.asarray(limits.velocity_rad_s) * dt_s
    stepped: ndarray = from_rad + np.clip(inside - from_rad, -step, step)
    return stepped


class Bounded:
    """Remembers what was sent, so that the next step starts there, and how much time has passed."""

    def __init__(
        self, robot: str, limits: JointLimits, rate_hz: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not 0.0 < rate_hz <= 1000.0:
            raise ConfigError(f"rate_hz={rate_hz} cannot be used, expected commands per second in (0, 1000].")
        self._robot, self._limits, self._period_s, self._clock = robot, limits, 1.0 / rate_hz, clock
        self._sent_rad: ndarray | None = None
        self._sent_s = 0.0

    def reset(self) -> None:
        """The next command starts from where the arm is."""
        self._sent_rad = None

    def next(self, command: JointCommand, measured_rad: Float[ndarray, " j"]) -> Float[ndarray, " j"]:
        """What to send now. A late command may step as far as two periods allow, not as far as it is late."""
        goal_rad = checked(self._robot, command, len(self._limits.low_rad))
        now_s = self._clock()
        first = self._sent_rad is None
        start_rad = measured_rad if self._sent_rad is None else self._sent_rad
        dt_s = self._period_s if first else min(now_s - self._sent_s, 2.0 * self._period_s)
        self._sent_rad, self._sent_s = bound(goal_rad, start_rad, dt_s, self._limits), now_s
        return self._sent_rad


def checked(robot: str, command: JointCommand, joints: int) -> Float[ndarray, " j"]:
    """The command as an array. Raises DriverError for what is no command to this arm."""
    if not isinstance(command, JointCommand):
        raise DriverError(f"{robot} takes JointCommand, found {type(command).__name__}. Nothing was sent.")
    goal_rad = np.asarray(command.position_rad, float)
    if goal_rad.shape != (joints,):
        raise DriverError(
            f"{robot} has {joints} joints, found a command of shape {goal_rad.shape}. Nothing was sent."
        )
    if not np.isfinite(goal_rad).all():
        raise DriverError(f"A command to {robot} is not finite: {goal_rad.tolist()}. Nothing was sent.")
    return goal_rad


def check_names(robot: str, found: Sequence[str], expected: Sequence[str]) -> list[int]:
    """Where each expected joint stands in `found`. Raises DriverError that names those that are missing."""
    if missing := [name for name in expected if name not in found]:
        raise DriverError(
            f"{robot} has no joint {', '.join(missing)}; it tells {', '.join(found) or 'none'}. Is it the "
            "robot that the bundle was made for, and are all of its controllers started?"
        )
    return [list(found).index(name) for name in expected]
