"""Gate of a race for plots and videos, independent of simulator and arena."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

_SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]) / 2.0


@dataclass(frozen=True, slots=True)
class GateFrame:
    """An upright square opening with a frame around it."""

    position_m: tuple[float, float, float]  # of the centre; world
    heading_deg: float  # direction of flight through it: 0 along x, 90 along y
    opening_m: float
    outer_m: float

    def normal(self) -> Float[ndarray, " 3"]:
        angle = np.radians(self.heading_deg)
        return np.array([np.cos(angle), np.sin(angle), 0.0])

    def corners(self, side_m: float) -> Float[ndarray, "4 3"]:
        """Corners of a square of this side in the gate's plane, around its centre."""
        nx, ny, _ = self.normal()
        across = np.array([-ny, nx, 0.0])
        flat = _SQUARE * side_m
        corners: ndarray = (
            np.asarray(self.position_m) + flat[:, :1] * across + flat[:, 1:] * np.array([0.0, 0.0, 1.0])
        )
        return corners

    def bars(self) -> list[Float[ndarray, "4 3"]]:
        """The frame as four convex areas."""
        inner, outer = self.corners(self.opening_m), self.corners(self.outer_m)
        return [np.stack([outer[i], outer[i - 3], inner[i - 3], inner[i]]) for i in range(4)]
