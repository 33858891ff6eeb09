"""Reports dropped commands in the terminal, so that a robot that does not move has a visible reason."""

from __future__ import annotations

import math
from collections.abc import Callable

from hardware.safety.reasons import Reason

AGAIN_S = 5.0  # interval between two reports
# Reasons of a filter that is not armed, or of a human in control: its status shows these.
EXPECTED = (Reason.NOT_ARMED, Reason.OUTRANKED)


class DropTeller:
    """Reports why a command was dropped, the first time and then every 5 s."""

    def __init__(self, node: str, say: Callable[[str], None]) -> None:
        self._node, self._say, self._said_s = node, say, -math.inf

    def tell(self, source: str, reason: Reason | None, now_s: float) -> None:
        """Report a dropped command. source: its sender."""
        if reason is not None and reason not in EXPECTED:
            self.tell_sentence(f"what {source} sends", reason.sentence, now_s)

    def tell_sentence(self, what: str, sentence: str, now_s: float) -> None:
        """Report that `what` is dropped, and why; nothing for an empty sentence."""
        if not sentence or now_s - self._said_s <= AGAIN_S:
            return
        self._said_s = now_s
        self._say(f"{self._node}: {what} is dropped: {sentence}.")
