"""In which frames a craft's state is told: ENU and FLU of REP 103, and the same ones for as long as it flies.

PX4's own topics and some bridges tell NED and FRD under a name that says so. Up would be down: such a state
is not taken.
"""

from __future__ import annotations

import re

from hardware.messages import Odometry

_OTHERS = ("ned", "frd")  # of world and body: z points down


class Frames:
    """Remembers in which frames the states came that were taken."""

    def __init__(self) -> None:
        self._taken: tuple[str, str] | None = None

    def forget(self) -> None:
        """The next state may name others: nothing flies by those of before."""
        self._taken = None

    def fault(self, message: Odometry) -> str:
        """Why this state is not taken, in a sentence without its full stop; empty, and remembered, when it
        is.
        """
        told = message.frame, message.child_frame
        for name, expected in zip(told, ("ENU", "FLU"), strict=True):
            if found := axes_in(name):
                return (
                    f"odom is told in '{name}', which is {found.upper()}, expected {expected} (REP 103): "
                    "convert it, or let robot_driver tell it"
                )
        if self._taken is not None and told != self._taken:
            return (
                f"odom changed its frames from '{self._taken[0]}' and '{self._taken[1]}' to '{told[0]}' and "
                f"'{told[1]}': two estimators tell it, or one began anew. Leave one of them, and land before "
                "it changes"
            )
        self._taken = told
        return ""


def axes_in(name: str) -> str:
    """The other axes that a frame's name says, as a word of it: `odom_ned`, `base_link_frd`; empty when
    none.
    """
    return next((word for word in re.split(r"[^a-z]+", name.lower()) if word in _OTHERS), "")
