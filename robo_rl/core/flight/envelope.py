"""Flight envelope of a policy: permitted positions, attitudes and rates. Stored in the bundle, held by the
safety filter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from robo_rl.core.errors import ConfigError

Vec3 = tuple[float, float, float]
# Permitted range of each number in a bundle. A value outside is a mistake, or an attempt to disable the
# safety filter. cut_height_m: a fall from this height does no damage. cut_tilt_rad: no craft is upside down
# below a quarter turn.
RANGES = {
    "tilt_rad": (1e-3, math.pi + 1e-6),
    "rate_rad_s": (1e-3, 100.0),
    "speed_m_s": (1e-3, 100.0),
    "descend_m_s": (0.05, 3.0),
    "cut_height_m": (0.0, 0.3),
    "cut_tilt_rad": (0.5 * math.pi, math.pi + 1e-6),
}
MOST_FENCE_M = 10_000.0


@dataclass(frozen=True, slots=True)
class CraftLimits:
    """Limits of an aircraft that bound every bundle's envelope; the flight filter always has some.

    fence_m: half of the fence's sides, around the origin of the task.
    """

    tilt_rad: float = 2.1
    rate_rad_s: float = 40.0
    speed_m_s: float = 5.0
    descend_m_s: float = 1.0
    cut_height_m: float = 0.1
    fence_m: Vec3 = (10.0, 10.0, 10.0)

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name, least)
            if not (_is_number(value) and least <= value <= most):
                raise ConfigError(
                    f"{name} = {value!r} in the aircraft's limits: {least:g} to {most:.4g} was expected."
                )
        if not (len(self.fence_m) == 3 and all(_is_inside(side) and side > 0.0 for side in self.fence_m)):
            raise ConfigError(
                f"fence_m = {self.fence_m!r} in the aircraft's limits: three numbers above 0, "
                f"up to {MOST_FENCE_M:g} m, were expected."
            )


@dataclass(frozen=True, slots=True)
class FlightEnvelope:
    """Limits in the world frame (ENU), relative to the origin of the task. Outside them the policy is
    disengaged.

    Tilt is the angle between the body's up axis and the world's; rate and speed are norms. Landing: descend
    level at `descend_m_s` and stop the motors below `cut_height_m` above ground. Motors stop at once at a
    tilt above `cut_tilt_rad`, from which no thrust recovers.
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
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if not (_is_number(value) and least <= value <= most):
                raise ConfigError(
                    f"{name} = {value!r} in a flight envelope: {least:g} to {most:.4g} was expected."
                )
        if self.tilt_rad > self.cut_tilt_rad:
            raise ConfigError(
                f"tilt_rad = {self.tilt_rad:g} exceeds cut_tilt_rad = {self.cut_tilt_rad:g}: the motors "
                "would stop inside the envelope. Raise cut_tilt_rad, or lower tilt_rad."
            )
        for name in ("fence_low_m", "fence_high_m"):
            corner = getattr(self, name)
            if not (isinstance(corner, tuple) and len(corner) == 3 and all(map(_is_inside, corner))):
                raise ConfigError(
                    f"{name} = {corner!r} in a flight envelope: three numbers within {MOST_FENCE_M:g} m "
                    "were expected."
                )
        for axis, low, high in zip("xyz", self.fence_low_m, self.fence_high_m, strict=True):
            if not low < high:
                raise ConfigError(f"The geofence is empty in {axis}: it runs from {low} to {high} m.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def within(self, limits: CraftLimits) -> FlightEnvelope:
        """Intersection of the envelope and the aircraft's limits. Raises ConfigError if it is empty."""
        names = ("tilt_rad", "rate_rad_s", "speed_m_s", "descend_m_s", "cut_height_m")
        least = {name: min(getattr(self, name), getattr(limits, name)) for name in names}
        low, high = (_clipped(corner, limits.fence_m) for corner in (self.fence_low_m, self.fence_high_m))
        return replace(self, **least, fence_low_m=low, fence_high_m=high)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FlightEnvelope:
        """Envelope from JSON. Raises ConfigError for missing or unknown keys and for impossible values."""
        names = {item.name for item in fields(cls)}
        if not isinstance(data, Mapping):
            raise ConfigError(f"A flight envelope is {data!r}; a mapping of its keys was expected.")
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_inside(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST_FENCE_M


def _clipped(corner: Vec3, most_m: Vec3) -> Vec3:
    x, y, z = (min(max(value, -most), most) for value, most in zip(corner, most_m, strict=True))
    return x, y, z
