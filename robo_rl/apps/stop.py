"""Stopping between two steps: Ctrl-C and SIGTERM ask, and the loop answers when its state is whole."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """`asked` turns true at the first signal; a second one interrupts at once, without waiting for a whole state."""

    def __init__(self) -> None:
        self.asked = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt("stopped at once; the last checkpoint is kept")
        self.asked = True
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
