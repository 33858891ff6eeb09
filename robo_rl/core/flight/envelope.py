"""The flight envelope: where and how a policy is allowed to fly. Data for the safety filter, carried in the
bundle.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from robo_rl.core.errors import ConfigError

Vec3 = tuple[float, float, float]
# Least and most of each number, whatever a bundle says: beyond them it is a mistake, or an attempt to switch the safety
# filter off. cut_height_m: a fall from there breaks no craft. cut_tilt_rad: below a quarter turn no craft is upside
# down.
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
    """Most that a craft allows any bundle to ask for; the flight filter always has some.

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
                    f"{name} = {value!r} of a craft's limits: {least:g} to {most:.4g} was expected."
                )
        if not (len(self.fence_m) == 3 and all(_is_inside(side) and side > 0.0 for side in self.fence_m)):
            raise ConfigError(
                f"fence_m = {self.fence_m!r} of a craft's limits: three numbers above 0, up to {MOST_FENCE_M:g} m, "
                "were expected."
            )


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
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if not (_is_number(value) and least <= value <= most):
                raise ConfigError(
                    f"{name} = {value!r} of a flight envelope: {least:g} to {most:.4g} was expected."
                )
        if self.tilt_rad > self.cut_tilt_rad:
            raise ConfigError(
                f"tilt_rad = {self.tilt_rad:g} is beyond cut_tilt_rad = {self.cut_tilt_rad:g}: the motors "
                "would stop inside the envelope. Raise cut_tilt_rad, or lower tilt_rad."
            )
        for name in ("fence_low_m", "fence_high_m"):
            corner = getattr(self, name)
            if not (isinstance(corner, tuple) and len(corner) == 3 and all(map(_is_inside, corner))):
                raise ConfigError(
                    f"{name} = {corner!r} of a flight envelope: three numbers within {MOST_FENCE_M:g} m were expected."
                )
        for axis, low, high in zip("xyz", self.fence_low_m, self.fence_high_m, strict=True):
            if not low < high:
                raise ConfigError(f"The geofence is empty in {axis}: it runs from {low} to {high} m.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def within(self, limits: CraftLimits) -> FlightEnvelope:
        """The part of the envelope that the craft's own limits allow. Raises ConfigError where nothing is left."""
        names = ("tilt_rad", "rate_rad_s", "speed_m_s", "descend_m_s", "cut_height_m")
        least = {name: min(getattr(self, name), getattr(limits, name)) for name in names}
        low, high = (_clipped(corner, limits.fence_m) for corner in (self.fence_low_m, self.fence_high_m))
        return replace(self, **least, fence_low_m=low, fence_high_m=high)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FlightEnvelope:
        """Raises ConfigError for keys that are missing or unknown, and for impossible values."""
        names = {item.name for item in fields(cls)}
        if not isinstance(data, Mapping):
            raise ConfigError(f"A flight envelope is {data!r}, its keys and numbers were expected.")
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
