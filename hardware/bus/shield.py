"""Leaving undisturbed: a second Ctrl-C may not cut short what brings a robot to rest."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SHIELDED = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def shielded() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM inside the block. Keep it short: only SIGKILL ends it early."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread alone
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SHIELDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
