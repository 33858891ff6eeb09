"""Topics that move a robot have one publisher; any second one is a fault.

A bus does not define who may command. Two publishers of commands take turns at moving the robot, and
two publishers of its state show it in two places. So a robot and its filter stop while there are two,
and nothing is armed or connected until one is left. A node that was killed counts until its lease ends,
after 10 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hardware.bus.protocol import Bus
from hardware.topic import Topic


class SolePublishers:
    """Watches topics, each with the largest number of publishers that it may have.

    publisher_conflict: a sentence while a topic has too many, with their names and what to do; otherwise
    empty.
    on_change: called with that sentence when it changes.
    """

    def __init__(self, bus: Bus, most: Mapping[Topic[Any], int], on_change: Callable[[str], None]) -> None:
        self.publisher_conflict = ""
        self._most = {topic.name: count for topic, count in most.items()}
        self._names: dict[str, tuple[str, ...]] = {}
        self._on_change = on_change
        for topic in most:
            bus.watch_publishers(topic.name, partial(self._on_names, topic.name))

    def _on_names(self, topic: str, names: tuple[str, ...]) -> None:
        self._names[topic] = names
        found = next(
            (_sentence(name, each) for name, each in self._names.items() if len(each) > self._most[name]), ""
        )
        if found != self.publisher_conflict:
            self.publisher_conflict = found
            self._on_change(found)


def _sentence(topic: str, names: tuple[str, ...]) -> str:
    listed = " and ".join(sorted(names))
    return (
        f"{topic} has {len(names)} publishers, {listed}: end one of them. One that was killed counts for 10 s"
    )
