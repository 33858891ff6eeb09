"""Conversion between the units of a flight policy's contract and those of `flight/raw` and `flight/safe`.

    motors  four numbers in [-1, 1], unchanged
    rates   thrust [weights] <-> autopilot thrust in [0, 1] = hover * weights; body rates [rad/s] unchanged

The autopilot's thrust is assumed to be proportional to force around hover. Where it is not, or where `hover`
is wrong, the integral term of the policy compensates a part of the error, and the craft sinks or climbs by
the remainder.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.flight.level import UNITS
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec

Four = Float[ndarray, " 4"]


@dataclass(frozen=True, slots=True)
class FlightUnits:
    """Unit conversion for one bundle.

    spec: the action space of the bundle. hover: autopilot thrust in (0, 1) at which the craft hovers, used
    for body-rate policies only. Raises ConfigError for a hover thrust outside (0, 1).
    """

    spec: ActionSpec
    hover: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.hover < 1.0:
            raise ConfigError(f"hover={self.hover:g}: expected a hover thrust above 0 and below 1.")

    @property
    def rates(self) -> bool:
        """True when actions are thrust and body rates, False when they are motor commands."""
        return self.spec.unit == UNITS["rates"]

    def to_filter(self, action: Four) -> Four:
        """Values of a `flight/raw` message for an action in the units of the contract."""
        values = np.array(action, dtype=np.float64)
        if self.rates:
            values[0] *= self.hover
        return values

    def to_policy(self, values: Four) -> Four:
        """Normalised action in [-1, 1] of the values of a `flight/safe` message.

        The policy observes its last actions in this form, after the limits of the filter.
        """
        if not self.rates:
            return values
        action = np.array(values, dtype=np.float64)
        action[0] /= self.hover
        seen: Four = self.spec.normalize(torch.from_numpy(action)).clamp(-1.0, 1.0).numpy()
        return seen
