"""Hands by name: properties that tasks need besides the MJCF."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from robo_rl.core.errors import UnknownNameError
from sim.asset_files import ASSETS


@dataclass(frozen=True, slots=True)
class Hand:
    """Fingers that face each other across a palm, all alike. Names are those of the MJCF `asset`.

    Finger `east` has the joints east0 ... east3, servos of the same names, a site `east_tip` in the middle of
    its rounded end and a touch sensor `east_skin`. Finger i and finger i + half of them face each other.
    """

    name: str
    asset: str
    fingers: tuple[str, ...]
    bends: int  # joints of a finger
    rest_rad: tuple[float, ...]  # of a finger: bent over, its tip beside an object on the palm
    palm: str  # body that carries the fingers
    grasp_m: float  # height over the origin of `palm` at which opposite tips meet an object between them
    flange_m: float  # height of that origin over the flange of an arm
    open_rad: tuple[float, ...]  # of a finger around an object in front of the palm
    closed_rad: tuple[float, ...]  # of a finger pressed into it

    @property
    def path(self) -> Path:
        return ASSETS / self.asset

    @property
    def joints(self) -> tuple[str, ...]:
        return tuple(f"{finger}{i}" for finger in self.fingers for i in range(self.bends))

    @property
    def home_rad(self) -> tuple[float, ...]:
        return self.rest_rad * len(self.fingers)


HANDS = {
    "hand4": Hand(
        name="hand4",
        asset="hand4.xml",
        fingers=("east", "north", "west", "south"),
        bends=4,
        rest_rad=(0.0, math.radians(66.0), math.radians(75.0), math.radians(52.0)),
        palm="palm",
        grasp_m=0.092,
        flange_m=0.05,
        open_rad=(0.0, math.radians(60.0), math.radians(60.0), math.radians(10.0)),
        closed_rad=(0.0, math.radians(92.0), math.radians(62.0), math.radians(30.0)),
    )
}


def load_hand(name: str) -> Hand:
    """A hand by name. Raises UnknownNameError."""
    if name not in HANDS:
        raise UnknownNameError("hand", name, HANDS)
    return HANDS[name]
