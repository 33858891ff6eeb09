"""Faults on a bus: a camera that freezes, messages that are lost, late or not finite.

    bus = FaultyBus(make_bus("camera"))
    node = CameraNode(bus, ...)
    bus.inject(image_topic("front").name, Freeze())  # from now on
    bus.cure(image_topic("front").name)

The node publishes as always; what reaches the others is what the fault makes of it. For tests of nodes, of an
app or of a safety filter. A full disk and a kill are in `hardware.checks.faulty_disk`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from hardware.bus.protocol import Bus, Profile
from hardware.messages import Message

M = TypeVar("M", bound=Message)


@runtime_checkable
class MessageFault(Protocol):
    """Turns a message into those that are sent at its time, which may be none."""

    def __call__(self, message: Any, now_s: float) -> list[Any]: ...


@dataclass
class Freeze:
    """Repeats the first message with the stamps of the later ones, as a hung camera does."""

    _first: Any = None

    def __call__(self, message: Any, now_s: float) -> list[Any]:
        if self._first is None:
            self._first = message
        return [replace(self._first, stamp_s=message.stamp_s)]


@dataclass
class Lose:
    """Loses a share of the messages; 1 loses all, as a cable that is pulled."""

    share: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, message: Any, now_s: float) -> list[Any]:
        return [] if self._random.random() < self.share else [message]


@dataclass
class Delay:
    """Sends each message with the first one that comes `seconds` later, in order."""

    seconds: float
    _waiting: deque[tuple[float, Any]] = field(default_factory=deque)

    def __call__(self, message: Any, now_s: float) -> list[Any]:
        self._waiting.append((now_s + self.seconds, message))
        due = []
        while self._waiting and self._waiting[0][0] <= now_s:
            due.append(self._waiting.popleft()[1])
        return due


@dataclass
class NotFinite:
    """Replaces the numbers of float arrays by `value`; an integer array, such as a picture, stays."""

    value: float = float("nan")

    def __call__(self, message: Any, now_s: float) -> list[Any]:
        arrays = {item.name: getattr(message, item.name) for item in fields(message)}
        wrong = {
            name: np.full_like(array, self.value)
            for name, array in arrays.items()
            if isinstance(array, np.ndarray) and np.issubdtype(array.dtype, np.floating)
        }
        return [replace(message, **wrong)]


class FaultyBus:
    """A bus whose publishers suffer the faults that are injected; everything else is that of `bus`."""

    def __init__(self, bus: Bus) -> None:
        self.name, self.namespace, self.discovery_s = bus.name, bus.namespace, bus.discovery_s
        self.now, self.stamp, self.timer = bus.now, bus.stamp, bus.timer
        self.subscribe, self.watch_publishers = bus.subscribe, bus.watch_publishers
        self.service, self.call, self.spin, self.close = bus.service, bus.call, bus.spin, bus.close
        self._bus, self._faults = bus, dict[str, MessageFault]()

    def inject(self, topic: str, fault: MessageFault) -> None:
        """Let a topic suffer a fault from now on. topic: as it is published, such as "joint_states"."""
        self._faults[topic] = fault

    def cure(self, topic: str) -> None:
        """End the fault of a topic; messages that it delays are lost."""
        self._faults.pop(topic, None)

    def publisher(self, topic: str, kind: type[M], profile: Profile) -> Callable[[M], None]:
        """See `Bus.publisher`."""
        publish = self._bus.publisher(topic, kind, profile)

        def send(message: M) -> None:
            fault = self._faults.get(topic)
            for each in [message] if fault is None else fault(message, self._bus.now()):
                publish(each)

        return send
