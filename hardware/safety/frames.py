"""Frames of a craft's state: ENU and FLU of REP 103, unchanged while the craft flies.

PX4's own topics and some bridges publish NED and FRD, with frame names that say so. In them z points down:
such a state is dropped.
"""

from __future__ import annotations

import re

from hardware.messages import Odometry

_OTHERS = ("ned", "frd")  # frames of world and body with z down


class Frames:
    """Remembers the frames of the accepted states."""

    def __init__(self) -> None:
        self._taken: tuple[str, str] | None = None

    def fault(self, message: Odometry, may_change: bool = False) -> str:
        """Why this state is dropped, without a final full stop; empty if its frames are right.

        may_change: the craft does not fly, so that its frames may be others than before.
        """
        frames = message.frame, message.child_frame
        for name, expected in zip(frames, ("ENU", "FLU"), strict=True):
            if found := axes_in(name):
                return (
                    f"odom is in '{name}', which is {found.upper()}, expected {expected} (REP 103): "
                    "convert it, or let robot_driver tell it"
                )
        if not may_change and self._taken is not None and frames != self._taken:
            return (
                f"odom changed its frames from '{self._taken[0]}' and '{self._taken[1]}' to '{frames[0]}' "
                f"and '{frames[1]}': two estimators publish it, or one was restarted. Keep one of them, and "
                "land before it changes"
            )
        return ""

    def take(self, message: Odometry) -> None:
        """Remember the frames of an accepted state."""
        self._taken = message.frame, message.child_frame


def axes_in(name: str) -> str:
    """Axes named in a frame's name, as in `odom_ned` or `base_link_frd`, if they are not ENU or FLU; else
    empty.
    """
    return next((word for word in re.split(r"[^a-z]+", name.lower()) if word in _OTHERS), "")
