"""Properties of a link to a quadcopter: the limits of its driver, and the rates of states and commands."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardware.driver import DRIVERS
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.registry import lookup

LINKS = ("crazyflie", "px4", "px4_topics", "crazyswarm2")  # drivers that accept body rates
SETPOINT_LIMITS = ("max_tilt_rad", "max_speed_m_s")  # of drivers that accept attitudes and velocities, too
LINK_HZ = 100.0  # states and commands: log packets of a Crazyflie, requested rate of a PX4


@dataclass(frozen=True, slots=True)
class QuadLink:
    """Limits of a link.

    rate_rad_s: largest rate about each body axis. thrust_high: largest thrust, a fraction of the full thrust.
    command_hz, state_hz: rates of commands and states.
    """

    name: str
    rate_rad_s: float
    thrust_high: float
    command_hz: float = LINK_HZ
    state_hz: float = LINK_HZ


def quad_link(name: str, settings: Mapping[str, Any]) -> QuadLink:
    """The link of the driver `name` with these settings and the driver's defaults. It is not opened.

    Raises UnknownNameError for a driver of another device, ConfigError for limits that are not numbers, or
    that have no effect on body rates, the only setpoints of a link.
    """
    if name not in LINKS:
        raise UnknownNameError("driver of a quadcopter", name, LINKS)
    if useless := [key for key in SETPOINT_LIMITS if key in settings]:
        raise ConfigError(
            f"{' and '.join(useless)} of the driver '{name}' would not bound the thrust and body rates of a "
            "policy: leave them out, and set the limits of the flight filter, as in robo-rl up quad "
            f"{useless[0]}={settings[useless[0]]}."
        )
    defaults = inspect.signature(lookup("driver", DRIVERS, name)).parameters
    bounds = {key: settings.get(key, defaults[key].default) for key in ("max_rate_rad_s", "thrust_high")}
    for key, value in bounds.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{key} of the driver '{name}' is {value!r}, expected a number.")
    return QuadLink(name, float(bounds["max_rate_rad_s"]), float(bounds["thrust_high"]))
