"""What a quadcopter behind a link takes: the bounds of its driver, and the rate that radio or serial line
carry.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hardware.driver import DRIVERS
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.registry import lookup

LINKS = ("crazyflie", "px4", "px4_topics", "crazyswarm2")  # drivers that follow body rates
LINK_HZ = 100.0  # of states and of commands: a Crazyflie's log packet, and what we ask a PX4 for


@dataclass(frozen=True, slots=True)
class QuadLink:
    """rate: of each body axis that the driver lets through. thrust_high: of its full thrust."""

    name: str
    rate_rad_s: float
    thrust_high: float
    command_hz: float = LINK_HZ
    state_hz: float = LINK_HZ


def quad_link(name: str, settings: Mapping[str, Any]) -> QuadLink:
    """The link of this driver with these settings, its own where they say nothing. It is not opened.

    Raises UnknownNameError for a driver of anything else, ConfigError for bounds that are no numbers.
    """
    if name not in LINKS:
        raise UnknownNameError("driver of a quadcopter", name, LINKS)
    defaults = inspect.signature(lookup("driver", DRIVERS, name)).parameters
    bounds = {key: settings.get(key, defaults[key].default) for key in ("max_rate_rad_s", "thrust_high")}
    for key, value in bounds.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{key} of the driver '{name}' is {value!r}, expected a number.")
    return QuadLink(name, float(bounds["max_rate_rad_s"]), float(bounds["thrust_high"]))
