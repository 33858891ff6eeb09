"""The flight envelope: where and how a policy is allowed to fly. Data for the safety filter, carried in the
bundle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from robo_rl.core.errors import ConfigError

Vec3 = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class FlightEnvelope:
    """World frame ENU, relative to the origin of the task. Outside of it the policy no longer commands.

    Tilt is the angle between the craft's up and the world's; rate and speed are norms. Landing: go down level
    at `descend_m_s`, stop the motors below `cut_height_m` above ground, or at once when tilted beyond
    `cut_tilt_rad`, where no thrust brings the craft back.
    """

    tilt_rad: float
    rate_rad_s: float
    speed_m_s: float
    fence_low_m: Vec3
    fence_high_m: Vec3
    descend_m_s: float = 0.3
    cut_height_m: float = 0.05
    cut_tilt_rad: float = 2.1

    def __post_init__(self) -> None:
        for name in ("tilt_rad", "rate_rad_s", "speed_m_s", "descend_m_s", "cut_tilt_rad"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigError(f"{name} = {value} of a flight envelope must be above 0 and finite.")
        if not (math.isfinite(self.cut_height_m) and self.cut_height_m >= 0.0):
            raise ConfigError(f"cut_height_m = {self.cut_height_m} of a flight envelope must be at least 0.")
        if self.tilt_rad > self.cut_tilt_rad:
            raise ConfigError(
                f"tilt_rad = {self.tilt_rad:g} is beyond cut_tilt_rad = {self.cut_tilt_rad:g}: the motors "
                "would stop inside the envelope. Raise cut_tilt_rad, or lower tilt_rad."
            )
        for axis, low, high in zip("xyz", self.fence_low_m, self.fence_high_m, strict=True):
            if not low < high:  # also false for NaN
                raise ConfigError(f"The geofence is empty in {axis}: it runs from {low} to {high} m.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FlightEnvelope:
        """Raises ConfigError for keys that are missing or unknown, and for impossible values."""
        names = {item.name for item in fields(cls)}
        if set(data) != names:
            raise ConfigError(
                f"A flight envelope has exactly the keys {', '.join(sorted(names))}; missing: "
                f"{', '.join(sorted(names - set(data))) or 'none'}, unknown: "
                f"{', '.join(sorted(set(data) - names)) or 'none'}."
            )
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        return cls(**values)
