"""Recorded swarm among cylinders as arrays, from any simulator or robot; input of plots and videos."""

from __future__ import annotations

from dataclasses import dataclass

from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float


@dataclass(frozen=True, slots=True)
class SwarmLog:
    """t samples of n drones in one room; z = 0 is the floor, x = y = 0 the centre.

    Raises ConfigError for arrays whose shapes do not match, with the shape that was found.
    """

    label: str
    time_s: Float[ndarray, " t"]
    position_m: Float[ndarray, "t n 3"]
    quat_wxyz: Float[ndarray, "t n 4"]  # body -> world
    goal_m: Float[ndarray, "t n 3"]
    cylinders_m: Float[ndarray, "m 2"]  # axes
    failed: Bool[ndarray, " n"]
    cylinder_radius_m: float
    room_m: tuple[float, float, float]

    def __post_init__(self) -> None:
        steps, num = len(self.time_s), len(self.failed)
        for name, width in (("position_m", 3), ("quat_wxyz", 4), ("goal_m", 3)):
            found = getattr(self, name).shape
            if found != (steps, num, width) or not steps or not num:
                raise ConfigError(
                    f"{name} has shape {found}; with this time_s and failed it must have "
                    f"{(steps, num, width)}, at least one sample of one drone."
                )
