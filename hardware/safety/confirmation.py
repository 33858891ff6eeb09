"""Confirmation of a state that cuts the motors, so that one wrong state does not drop a flying craft.

An estimator may report a wrong attitude or height once, at a reset or after a lost packet. A craft that has
tipped over, or stands on the ground, reports it in every state. Three states take 20 ms at 100 Hz, in which a
craft whose thrust points downwards at twice its weight falls by 6 mm: (1 + 2) g t^2 / 2. At low rates two
states suffice once they are 50 ms apart, in which it falls by 4 cm.
"""

from __future__ import annotations

STATES = 3  # in a row that confirm each other
LONG_S = 0.05  # time after which two states in a row do


class Confirmation:
    """Counts states beyond a limit that follow each other without one inside it."""

    def __init__(self) -> None:
        self._count, self._first_s = 0, 0.0

    def reset(self) -> None:
        """Note a state inside the limit."""
        self._count = 0

    def confirms(self, received_s: float) -> bool:
        """Note a state beyond the limit; true when it is no error of a single state."""
        if self._count == 0:
            self._first_s = received_s
        self._count += 1
        return self._count >= STATES or (self._count > 1 and received_s - self._first_s >= LONG_S)
