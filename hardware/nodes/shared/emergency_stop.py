"""Subscription of `estop` that tells publishers apart, and notices one of which no message arrived.

A publisher that sends as soon as it exists, such as `ros2 topic pub --once`, may not be heard: CycloneDDS
discards a message whose publisher it has not discovered yet, and does not ask another vendor's DDS to send it
again. Of 16 stops by Fast DDS on a busy machine, 9 were lost. What such a publisher said is unknown, so its
end counts as a stop.

Several programs may press the stop, such as a button and the recording page. A release by one of them does
not release what another one presses.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hardware.bus.protocol import Answer, Bus, QueueBus, SenderBus
from hardware.messages import Flag
from hardware.topics import ESTOP

STILL_PRESSED = (
    "a release on estop was not accepted, because another publisher of it still presses the stop: release "
    "that one, too. One that was killed counts for 10 s; then release again"
)
NOT_TOLD_APART = (
    "a release on estop was not accepted, because it has {} publishers, and rclpy does not tell which of "
    "them pressed the stop: end all but one (one that was killed counts for 10 s), then release again"
)


class EmergencyStop:
    """Calls on_message for each message that counts, and on_unheard when a publisher ends without one.

    A press always counts. A release counts unless another publisher still presses; on a bus that does not
    tell who sent a message (`SenderBus`), unless there is another publisher. There, a message also counts as
    heard from all publishers that exist. appeared_s: when the newest publisher did. refused: sentence from a
    release that was not accepted until one is; empty otherwise.
    """

    def __init__(
        self,
        bus: Bus,
        on_message: Callable[[Flag, float], None],
        on_unheard: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._on_message, self._on_unheard, self._say = on_message, on_unheard, say
        self._bus, self.appeared_s, self.refused = bus, -math.inf, ""
        self._senders = frozenset[int]()  # publishers that exist
        self._heard, self._pressing = set[int](), set[int]()
        self._latched = False  # a press was passed on, and no release since
        if isinstance(bus, SenderBus):
            bus.subscribe_senders(ESTOP.name, Flag, ESTOP.profile, self._receive, self._on_senders)
        else:
            # Otherwise the release of one publisher could replace the press of another.
            subscribe = bus.subscribe_queue if isinstance(bus, QueueBus) else bus.subscribe
            subscribe(ESTOP.name, Flag, ESTOP.profile, self._receive_unknown)
            bus.watch_publishers(ESTOP.name, self._on_publishers)

    def explained(self, answer: Answer) -> Answer:
        """The answer to ~/arm, with the release that was not accepted."""
        done, sentence = answer
        return (done, sentence) if done or not self.refused else (done, f"{sentence}; {self.refused}")

    def _receive(self, message: Flag, received_s: float, sender: int) -> None:
        self._heard.add(sender)
        (self._pressing.add if message.on else self._pressing.discard)(sender)
        others = self._pressing & self._senders
        self._pass_on(message, received_s, STILL_PRESSED if others else "")

    def _receive_unknown(self, message: Flag, received_s: float) -> None:
        self._heard |= self._senders
        several = NOT_TOLD_APART.format(len(self._senders)) if len(self._senders) > 1 else ""
        self._pass_on(message, received_s, several)

    def _pass_on(self, message: Flag, received_s: float, against: str) -> None:
        """Pass a press on, and a release that nothing speaks against."""
        if message.on:
            self._latched = True
        elif self._latched and against:
            if against != self.refused:
                self._say(f"{self._bus.name}: {against}.")
            self.refused = against
            return
        else:
            self._latched, self.refused = False, ""
        self._on_message(message, received_s)

    def _on_senders(self, senders: frozenset[int]) -> None:
        before, self._senders = self._senders, senders
        if senders - before:
            self.appeared_s = self._bus.now()
        unheard = before - senders - self._heard
        self._heard &= senders
        self._pressing &= senders
        if unheard:
            self._on_unheard()

    def _on_publishers(self, names: tuple[str, ...]) -> None:
        """Number the publishers of a bus that does not: which of them appeared or ended is unknown."""
        if len(names) > len(self._senders):
            self._heard.clear()
        self._on_senders(frozenset(range(len(names))))
