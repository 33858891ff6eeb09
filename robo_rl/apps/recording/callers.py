"""Calls of other nodes' services that the control loop does not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol, runtime_checkable

from hardware.bus.protocol import Answer, Bus
from robo_rl.core.errors import BusError

TIMEOUT_S = 3.0
Then = Callable[[Answer], None]


@runtime_checkable
class Caller(Protocol):
    """Calls Trigger services."""

    def call(self, service: str, then: Then) -> None:
        """Call a service; `then(answer)` follows in a later `deliver`."""
        ...

    def deliver(self) -> None:
        """Hand over the answers that have come."""
        ...

    def close(self) -> None: ...


class DirectCaller:
    """Calls at once, on a bus whose nodes share the thread."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def call(self, service: str, then: Then) -> None:
        then(_answer(self._bus, service))

    def deliver(self) -> None:
        """Do nothing: answers were handed over at once."""

    def close(self) -> None:
        """Do nothing."""


class ThreadCaller:
    """Calls in a thread with a bus of its own."""

    def __init__(self, make_bus: Callable[[], Bus]) -> None:
        self._calls: SimpleQueue[tuple[str, Then] | None] = SimpleQueue()
        self._answered: SimpleQueue[tuple[Then, Answer]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(make_bus,), daemon=True)
        self._thread.start()

    def call(self, service: str, then: Then) -> None:
        self._calls.put((service, then))

    def deliver(self) -> None:
        while True:
            try:
                then, answer = self._answered.get_nowait()
            except Empty:
                return
            then(answer)

    def close(self) -> None:
        self._calls.put(None)
        self._thread.join(TIMEOUT_S)

    def _run(self, make_bus: Callable[[], Bus]) -> None:
        bus = make_bus()
        try:
            while (request := self._calls.get()) is not None:
                service, then = request
                self._answered.put((then, _answer(bus, service)))
        finally:
            bus.close()


def _answer(bus: Bus, service: str) -> Answer:
    try:
        return bus.call(service, TIMEOUT_S)
    except BusError as error:
        return False, str(error)
