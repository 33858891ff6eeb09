"""Stopping between two steps: Ctrl-C and SIGTERM ask, and the loop answers when its state is whole."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SAME_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """`asked` turns true at the first signal; a second one interrupts at once, without waiting for a whole state.

    What comes within half a second of the first is the same request: the kernel tells the child of a dead keeper once
    for each thread that the keeper had.
    """

    def __init__(self) -> None:
        self.asked, self._asked_s = False, 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            if time.monotonic() - self._asked_s > SAME_S:
                raise KeyboardInterrupt("stopped at once; the last checkpoint is kept")
            return
        self.asked, self._asked_s = True, time.monotonic()
        os.write(2, b"\nrobo-rl: stopping when this step is done; once more stops at once.\n")  # no lock, no buffer


@contextmanager
def stop_between_steps() -> Iterator[StopRequest]:
    """Inside the block, signals only set `asked`. In a thread that may not handle signals, nothing changes."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.handle) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
