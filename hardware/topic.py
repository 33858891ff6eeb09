"""One topic of the nodes; `hardware/topics.py` is the table of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from hardware.bus.protocol import Bus, Profile
from hardware.messages import Message

K = TypeVar("K", bound=Message)


@dataclass(frozen=True, slots=True)
class Topic(Generic[K]):
    """One topic. `rate`, `by`, `to` and `meaning` are texts for the documentation.

    by, to: the nodes that publish and subscribe.
    """

    name: str
    kind: type[K]
    profile: Profile
    rate: str
    by: str
    to: str
    meaning: str

    def publisher(self, bus: Bus) -> Callable[[K], None]:
        """A function that publishes one message. Raises BusError for an unusable name or type."""
        return bus.publisher(self.name, self.kind, self.profile)

    def subscribe(self, bus: Bus, callback: Callable[[K, float], None]) -> None:
        """Call callback(message, received_s) for each message; received_s is on the clock of `bus.now`."""
        bus.subscribe(self.name, self.kind, self.profile, callback)
