"""Conversion of stick deflections to joint positions near the measured ones."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

LEAD_S = 0.2  # lead of the wanted position, in seconds at full speed


class Jog:
    """Integrates stick rates. low_rad, high_rad: (j,) limits. speed_rad_s: (j,) at full deflection."""

    def __init__(
        self, low_rad: Float[ndarray, " j"], high_rad: Float[ndarray, " j"], speed_rad_s: Float[ndarray, " j"]
    ) -> None:
        self._low_rad, self._high_rad, self._speed_rad_s = low_rad, high_rad, speed_rad_s
        self._at_rad: ndarray | None = None

    def release(self) -> None:
        """Start the next jog from the arm's measured position."""
        self._at_rad = None

    def next(
        self, rates: Float[ndarray, " j"], measured_rad: Float[ndarray, " j"], dt_s: float
    ) -> Float[ndarray, " j"]:
        """Position after dt_s, within a limited lead of the measured one, so that a blocked arm does not jump
        when freed.
        """
        start_rad = measured_rad if self._at_rad is None else self._at_rad
        lead_rad = self._speed_rad_s * LEAD_S
        wish_rad = start_rad + np.clip(rates, -1.0, 1.0) * self._speed_rad_s * dt_s
        near_rad = np.clip(wish_rad, measured_rad - lead_rad, measured_rad + lead_rad)
        self._at_rad = np.clip(near_rad, self._low_rad, self._high_rad)
        return self._at_rad
