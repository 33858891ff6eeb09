"""Protection of a shutdown from signals, so that a second Ctrl-C does not interrupt stopping a robot."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from robo_rl.core.process_signals import ASK

SHIELDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, ASK)


@contextmanager
def shielded() -> Iterator[None]:
    """Ignore all signals that stop a robot inside the block. Keep it short: only SIGKILL can end it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SHIELDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
