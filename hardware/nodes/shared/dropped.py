"""What a filter drops, said in the terminal: else a robot that stands still seems to hear nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

from hardware.safety.reasons import Reason

AGAIN_S = 5.0  # said once in so long: commands come a hundred times a second
# What belongs to a filter that is not armed, or to a human's taking over; its state tells these.
EXPECTED = (Reason.NOT_ARMED, Reason.OUTRANKED, Reason.NOT_INTERVENING)


class DropTeller:
    """Says why a command was dropped, the first time and every 5 s while it goes on."""

    def __init__(self, node: str, say: Callable[[str], None]) -> None:
        self._node, self._say, self._said_s = node, say, -math.inf

    def tell(self, source: str, reason: Reason | None, now_s: float) -> None:
        """source: who sent it."""
        if reason is None or reason in EXPECTED or now_s - self._said_s <= AGAIN_S:
            return
        self._said_s = now_s
        self._say(f"{self._node}: what {source} sends is dropped: {reason.sentence}.")
