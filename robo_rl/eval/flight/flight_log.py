"""Recorded flight of several drones as arrays, from any simulator or robot; input of plots and videos."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float

ROTORS = ("front right", "back right", "back left", "front left")


@dataclass(frozen=True, slots=True)
class FlightLog:
    """t samples of n drones. World: z up; body: x forward, y left, z up. Values of a drone are NaN after its
    end.

    Raises ConfigError for arrays whose shapes do not match, with the shape that was found.
    """

    time_s: Float[ndarray, " t"]  # increasing
    position_m: Float[ndarray, "t n 3"]  # world
    quat_wxyz: Float[ndarray, "t n 4"]  # body -> world
    velocity_m_s: Float[ndarray, "t n 3"]  # world
    command: Float[ndarray, "t n 4"]  # rotor speeds, 0 ... 1 of the largest, in the order of ROTORS
    goal_m: Float[ndarray, "t n 3"] | Float[ndarray, " 3"]  # world; one for all, or one per drone and sample
    label: str

    def __post_init__(self) -> None:
        if self.time_s.ndim != 1 or not len(self.time_s) or not (np.diff(self.time_s) > 0.0).all():
            raise ConfigError(
                f"time_s has shape {self.time_s.shape}; expected (t,), t at least 1, increasing seconds."
            )
        if self.position_m.ndim != 3 or self.position_m.shape[1] == 0:
            raise ConfigError(
                f"position_m has shape {self.position_m.shape}; expected (t, n, 3), n at least 1."
            )
        num = self.position_m.shape[1]
        for name, width in (("position_m", 3), ("quat_wxyz", 4), ("velocity_m_s", 3), ("command", 4)):
            self._check(name, (len(self.time_s), num, width))
        if self.goal_m.shape != (3,):
            self._check("goal_m", (len(self.time_s), num, 3))
        flying = self.flying()
        if not flying[0].any() or not np.isfinite(self.goals()[flying]).all():
            raise ConfigError(
                f"{int(flying[0].sum())} of {num} drones fly at the start of this log; at least one must, "
                "and every drone needs a finite goal_m as long as it flies."
            )
        if (flying[1:] & ~flying[:-1]).any():
            raise ConfigError(
                "A drone of this log flies again after it was NaN. A log holds one flight per drone: stop "
                "recording a drone where its episode ends, before the environment resets it."
            )
        length = np.linalg.norm(self.quat_wxyz[flying], axis=-1)
        if (np.abs(length - 1.0) > 0.01).any():
            worst = length[np.abs(length - 1.0).argmax()]
            raise ConfigError(f"quat_wxyz holds a quaternion of length {worst:.3g}; attitudes have length 1.")

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        found = getattr(self, name).shape
        if found != shape:
            raise ConfigError(
                f"{name} has shape {found}; with this time_s and position_m it must have {shape}."
            )

    @property
    def num_drones(self) -> int:
        return int(self.position_m.shape[1])

    @property
    def duration_s(self) -> float:
        return float(self.time_s[-1] - self.time_s[0])

    def flying(self) -> Bool[ndarray, "t n"]:
        """Mask (t, n) of samples in which a drone flies."""
        finite: ndarray = np.isfinite(self.position_m).all(-1) & np.isfinite(self.quat_wxyz).all(-1)
        return finite

    def goals(self) -> Float[ndarray, "t n 3"]:
        return np.broadcast_to(self.goal_m, self.position_m.shape)

    def error_m(self) -> Float[ndarray, "t n"]:
        """Distance to the goal [m]."""
        distance: ndarray = np.linalg.norm(self.position_m - self.goals(), axis=-1)
        return distance

    def tilt_deg(self) -> Float[ndarray, "t n"]:
        """Angle between the body's z axis and the vertical, 0 to 180 degrees."""
        x, y = self.quat_wxyz[..., 1], self.quat_wxyz[..., 2]
        tilt: ndarray = np.degrees(np.arccos(np.clip(1.0 - 2.0 * (x * x + y * y), -1.0, 1.0)))
        return tilt

    def pose_at(
        self, time_s: float
    ) -> tuple[Float[ndarray, "n 3"], Float[ndarray, "n 4"], Float[ndarray, "n 3"]]:
        """(position, attitude, goal) at a time, linearly interpolated between samples; NaN for drones that
        have ended.
        """
        after = int(np.clip(np.searchsorted(self.time_s, time_s), 1, max(len(self.time_s) - 1, 1)))
        before, after = after - 1, min(after, len(self.time_s) - 1)
        span_s = float(self.time_s[after] - self.time_s[before])
        share = float(np.clip((time_s - self.time_s[before]) / span_s, 0.0, 1.0)) if span_s > 0.0 else 0.0
        start, end = self.quat_wxyz[before], self.quat_wxyz[after]
        # q and -q are the same attitude: interpolate along the shorter arc.
        end = np.where((start * end).sum(-1, keepdims=True) < 0.0, -end, end)
        quat = _between(start, end, share)
        goals = self.goals()
        position, goal = (_between(rows[before], rows[after], share) for rows in (self.position_m, goals))
        return position, quat / np.linalg.norm(quat, axis=-1, keepdims=True), goal


def _between(start: ndarray, end: ndarray, share: float) -> ndarray:
    """Linear interpolation; exactly the sample at share 0 or 1, where a NaN neighbour must not enter."""
    if share in (0.0, 1.0):
        return end if share else start
    mixed: ndarray = (1.0 - share) * start + share * end
    return mixed
