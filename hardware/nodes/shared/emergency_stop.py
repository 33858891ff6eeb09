"""Subscription of `estop` that also notices a publisher of which no message arrived.

A publisher that sends as soon as it exists, such as `ros2 topic pub --once`, may not be heard: CycloneDDS
discards a message whose publisher it has not discovered yet, and does not ask another vendor's DDS to send it
again. Of 16 stops by Fast DDS on a busy machine, 9 were lost. What such a publisher said is unknown, so its
end counts as a stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hardware.bus.protocol import Bus
from hardware.messages import Flag
from hardware.topics import ESTOP


class EmergencyStop:
    """Calls on_message for each message, and on_unheard when a publisher ends without one.

    A message of any publisher counts for all that exist then, because a bus does not tell who sent it.
    appeared_s: when the newest publisher did.
    """

    def __init__(
        self, bus: Bus, on_message: Callable[[Flag, float], None], on_unheard: Callable[[], None]
    ) -> None:
        self._on_message, self._on_unheard = on_message, on_unheard
        self._bus, self._publishers, self._heard, self.appeared_s = bus, 0, True, -math.inf
        ESTOP.subscribe(bus, self._receive)
        bus.watch_publishers(ESTOP.name, self._on_publishers)

    def _receive(self, message: Flag, received_s: float) -> None:
        self._heard = True
        self._on_message(message, received_s)

    def _on_publishers(self, names: tuple[str, ...]) -> None:
        before, self._publishers = self._publishers, len(names)
        if self._publishers > before:
            self._heard, self.appeared_s = False, self._bus.now()
        elif self._publishers < before and not self._heard:
            self._heard = self._publishers == 0
            self._on_unheard()
