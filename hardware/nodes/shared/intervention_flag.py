"""`teleop/intervention` of one program, which shares the topic with others."""

from __future__ import annotations

import math

from hardware.bus.protocol import Bus
from hardware.messages import Flag
from hardware.topics import INTERVENTION

ECHO_S = 0.04  # time after which a program's own flags have come back


class InterventionFlag:
    """Begins and ends this program's interventions, and notices when another program ends one.

    Nothing is sent before the first intervention: false would end that of another program. on: True during
    an intervention of this program.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus, self.on = bus, False
        self._since_s = self._ended_s = -math.inf  # begin of the intervention; newest flag, if it is false
        self._send = INTERVENTION.publisher(bus)
        INTERVENTION.subscribe(bus, self._note)

    def set(self, on: bool) -> None:
        """Begin or end an intervention; does nothing where it is so already."""
        if on != self.on:
            self.on, self._since_s = on, self._bus.now()
            self._send(Flag(on))

    def was_ended(self) -> bool:
        """True while another program has ended this intervention: the newest flag is its own."""
        ended = self._ended_s > self._since_s and self._bus.now() - self._ended_s > ECHO_S
        return self.on and ended

    def _note(self, message: Flag, received_s: float) -> None:
        """Note the newest flag; this program's own come back as well, on most buses."""
        self._ended_s = -math.inf if message.on else received_s
