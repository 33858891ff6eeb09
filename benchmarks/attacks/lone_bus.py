"""Bus of a single attacked node; the attack plays all other nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from hardware.bus.protocol import Answer, Profile


class LoneBus:
    """Holds the node's publishers and subscriptions; time advances in `advance` only.

    heard: topic -> (type, callback). sent: topic -> newest message and number of messages.
    """

    namespace, discovery_s = "", 0.0

    def __init__(self, name: str) -> None:
        self.name, self.now_s = name, 0.0
        self.heard: dict[str, tuple[type, Callable[[Any, float], None]]] = {}
        self.sent: dict[str, int] = defaultdict(int)
        self.watched: dict[str, Callable[[tuple[str, ...]], None]] = {}  # who publishes, by topic
        self.services: dict[str, Callable[[], Answer]] = {}
        self.on_sent: Callable[[str, Any], None] = lambda topic, message: None
        self._timers: list[list[Any]] = []

    def now(self) -> float:
        return self.now_s

    def stamp(self) -> float:
        return 1e9 + self.now_s

    def publisher(self, topic: str, kind: type, profile: Profile) -> Callable[[Any], None]:
        def publish(message: Any) -> None:
            self.sent[topic] += 1
            self.on_sent(topic, message)

        return publish

    def subscribe(
        self, topic: str, kind: type, profile: Profile, callback: Callable[[Any, float], None]
    ) -> None:
        before = self.heard.get(topic)

        def both(message: Any, received_s: float) -> None:
            if before is not None:
                before[1](message, received_s)
            callback(message, received_s)

        self.heard[topic] = kind, both

    def watch_publishers(self, topic: str, callback: Callable[[tuple[str, ...]], None]) -> None:
        self.watched[topic] = callback

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        self._timers.append([self.now_s + period_s, period_s, callback])

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        self.services[name] = callback

    def call(self, name: str, timeout_s: float) -> Answer:
        return self.services[name]()

    def spin(self, until: Callable[[], bool]) -> None:
        raise NotImplementedError("the attack runs the callbacks")

    def close(self) -> None:
        """Nothing is open."""

    def say(self, topic: str, message: Any) -> None:
        """Deliver a message to the node."""
        self.heard[topic][1](message, self.now_s)

    def advance(self, seconds: float) -> None:
        """Let time pass, and call the timers that are due."""
        end_s = self.now_s + seconds
        while due := [timer for timer in self._timers if timer[0] <= end_s]:
            timer = min(due, key=lambda timer: float(timer[0]))
            self.now_s = max(self.now_s, timer[0])
            timer[0] += timer[1]
            timer[2]()
        self.now_s = end_s
