"""State that the app's two threads share: requests of operators, and the newest view of the robot.

The bus runs in the main thread and never waits for a page: a view and its pictures are replaced as a whole,
and a page that is slow misses those in between.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from hardware.messages import Image
from robo_rl.apps.recording.requests import Request

MOST_NOTICES = 40
MOST_WAITING = 512  # requests that wait for the bus's thread, which takes them at the command rate


@dataclass(frozen=True)
class Notice:
    """A sentence for the operator. level: info, warning or error."""

    number: int
    level: str
    text: str
    at_s: float  # Unix time


class Notices:
    """Newest sentences for the operator, which also go to the log. A repetition within 5 s is dropped, except
    of a change that has to be told each time.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log, self._kept, self._count = log, deque[Notice](maxlen=MOST_NOTICES), 0

    def tell(self, text: str, level: str = "info", *, each_time: bool = False) -> None:
        """Add a sentence. each_time: also if it was told a moment ago."""
        at_s = time.time()
        if not each_time and any(n.text == text and at_s - n.at_s < 5.0 for n in self._kept):
            return
        self._count += 1
        self._kept.append(Notice(self._count, level, text, at_s))
        self._log(text)

    def newest(self) -> list[Notice]:
        """Newest sentences, oldest first."""
        return list(self._kept)


class SharedState:
    """Shared by the bus's thread and the server's."""

    def __init__(self) -> None:
        self.view: Mapping[str, Any] = {}
        self.pictures: Mapping[str, Image] = {}
        self.shapes: list[dict[str, Any]] = []  # of a simulated scene, for drawing
        self._requests: SimpleQueue[tuple[Request, float]] = SimpleQueue()

    def ask(self, request: Request, urgent: bool = True) -> bool:
        """Hand in a request; any thread may. False: too many wait, and this one is dropped, unless urgent."""
        if not urgent and self.waiting >= MOST_WAITING:
            return False
        self._requests.put((request, time.monotonic()))
        return True

    @property
    def waiting(self) -> int:
        """Number of requests that wait for the bus's thread."""
        return self._requests.qsize()

    def requests(self) -> list[tuple[Request, float]]:
        """Requests that came since the last call, with their times of receipt [s]."""
        found: list[tuple[Request, float]] = []
        while True:
            try:
                found.append(self._requests.get_nowait())
            except Empty:
                return found
