"""Wheeled bases by name: properties that tasks need besides the MJCF."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robo_rl.core.errors import UnknownNameError
from sim.asset_files import ASSETS


@dataclass(frozen=True, slots=True)
class BaseRobot:
    """A differential drive. Its MJCF has the joints and servos `joints` (x, y, heading) and a
    site `laser`.
    """

    name: str
    asset: str
    radius_m: float  # radius of the enclosing circle
    track_m: float  # distance between the wheels
    wheel_m_s: float  # maximum speed of a wheel's rim
    forward_m_s: float  # maximum commands: forward, backward and turning
    backward_m_s: float
    turn_rad_s: float
    rise_m_s2: float  # maximum rate of change of the commanded speed
    rise_rad_s2: float
    joints: tuple[str, str, str] = ("base_x", "base_y", "base_yaw")

    @property
    def path(self) -> Path:
        return ASSETS / self.asset


# Wheels of 0.0613 m at 17.4 rad/s, see freight.xml, make 1.067 m/s. Other limits are chosen here:
# round numbers below that; slow backwards, where the laser does not see; accelerations that a load on top
# tolerates, below those of the motors.
FREIGHT = BaseRobot("freight", "freight.xml", 0.28, 0.3748, 1.067, 1.0, 0.25, 2.5, 1.0, 4.0)
BASES = {"freight": FREIGHT}


def load_base(name: str) -> BaseRobot:
    """A base by name. Raises UnknownNameError."""
    if name not in BASES:
        raise UnknownNameError("base", name, BASES)
    return BASES[name]
