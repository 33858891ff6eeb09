"""A bus in virtual time for one node; the test is its other side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hardware.bus.protocol import Answer, Profile


class ScriptedBus:
    """`say` delivers a message as if it had been published; `sent` holds the node's messages, by topic."""

    name, namespace, discovery_s = "test", "", 0.0

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sent: dict[str, list[Any]] = {}
        self.kinds: dict[str, tuple[type, Profile]] = {}
        self.heard: dict[str, Callable[[Any, float], None]] = {}
        self.watched: dict[str, Callable[[tuple[str, ...]], None]] = {}  # who publishes, by topic
        self.services: dict[str, Callable[[], Answer]] = {}
        self._timers: list[list[Any]] = []  # [next time, period, callback]
        self.script: list[tuple[float, str, Any]] = []  # (when, topic, message), in order

    def now(self) -> float:
        return self.now_s

    def stamp(self) -> float:
        return 1e9 + self.now_s

    def publisher(self, topic: str, kind: type, profile: Profile) -> Callable[[Any], None]:
        self.kinds[topic] = kind, profile
        return self.sent.setdefault(topic, []).append

    def subscribe(
        self, topic: str, kind: type, profile: Profile, callback: Callable[[Any, float], None]
    ) -> None:
        self.kinds[topic] = kind, profile
        self.heard[topic] = callback

    def watch_publishers(self, topic: str, callback: Callable[[tuple[str, ...]], None]) -> None:
        self.watched[topic] = callback

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        self._timers.append([self.now_s + period_s, period_s, callback])

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        self.services[name] = callback

    def call(self, name: str, timeout_s: float) -> Answer:
        return self.services[name]()

    def spin(self, until: Callable[[], bool]) -> None:
        while not until():
            self.now_s += 0.001
            while self.script and self.script[0][0] <= self.now_s:
                _, topic, message = self.script.pop(0)
                self.heard[topic](message, self.now_s)
            for timer in self._timers:
                if timer[0] <= self.now_s:
                    timer[0] += timer[1]
                    timer[2]()

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        self.spin(lambda: self.now_s >= end_s - 1e-9)

    def close(self) -> None:
        pass
