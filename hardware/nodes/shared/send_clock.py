"""Stamps of a sender's commands, by which its receivers order them."""

from __future__ import annotations

import math

from hardware.bus.protocol import Bus

LEAST_S = 1e-6  # between two stamps; a stamp of today in seconds resolves a quarter of it


class SendClock:
    """The bus's time of stamps, made strictly increasing: it goes on when the clock stands or is set back."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self._last_s = bus, -math.inf

    def stamp(self) -> float:
        """Stamp of the next command [s], later than every one before."""
        self._last_s = max(self._bus.stamp(), self._last_s + LEAST_S)
        return self._last_s
