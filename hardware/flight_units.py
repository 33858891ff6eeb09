"""Between a flight policy and the filter: the units of its contract, and those of `flight/raw` and
`flight/safe`.

    motors  the same four numbers in [-1, 1]
    rates   thrust [weights] <-> thrust 0 ... 1 as the autopilot counts it, hover * weights; rates [rad/s] as they are

Around hover an autopilot's thrust is taken as proportional to force. Where it is not, or `hover` is wrong,
the policy's integral makes up for some of it and the craft sinks or climbs by the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.flight.level import UNITS
from robo_rl.core.spec import ActionSpec

Four = Float[ndarray, " 4"]


@dataclass(frozen=True, slots=True)
class FlightUnits:
    """hover: the thrust, 0 to 1 as this autopilot counts it, that carries the craft; only for level=rates."""

    spec: ActionSpec
    hover: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.hover < 1.0:
            raise ConfigError(
                f"hover={self.hover:g} cannot carry a craft: a thrust above 0 and below 1 does."
            )

    @property
    def rates(self) -> bool:
        return self.spec.unit == UNITS["rates"]

    def to_filter(self, action: Four) -> Four:
        """What is sent for an action in the units of the contract."""
        values = np.array(action, dtype=np.float64)
        if self.rates:
            values[0] *= self.hover
        return values

    def to_policy(self, values: Four) -> Four:
        """What was sent, in [-1, 1]: so the policy sees its last actions, after the filter's limits."""
        if not self.rates:
            return values
        action = np.array(values, dtype=np.float64)
        action[0] /= self.hover
        seen: Four = self.spec.normalize(torch.from_numpy(action)).clamp(-1.0, 1.0).numpy()
        return seen
