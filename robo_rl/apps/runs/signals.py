"""Signals that ask a program to end: noted between two steps of a loop, and named in what the terminal
shows.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

SAME_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
KEEPER = "ROBO_RL_KEEPER"  # process id of the `robo-rl up` that looks after this node
_ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """`asked` turns true at the first signal; a second one interrupts at once, without waiting for a whole
    state.

    What comes within half a second of the first is the same request: the kernel tells the child of a dead
    keeper once for each thread that the keeper had.
    """

    def __init__(self) -> None:
        self.asked, self._asked_s = False, 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            if time.monotonic() - self._asked_s > SAME_S:
                raise KeyboardInterrupt("stopped at once; the last checkpoint is kept")
            return
        self.asked, self._asked_s = True, time.monotonic()
        os.write(
            2, b"\nrobo-rl: stopping when this step is done; once more stops at once.\n"
        )  # no lock, no buffer


@contextmanager
def stop_between_steps() -> Iterator[StopRequest]:
    """Inside the block, signals only set `asked`. In a thread that may not handle signals, nothing
    changes.
    """
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


class Interruptible:
    """Inside the `with` block the first Ctrl-C is only noted; `check`, called between steps, raises it.

    The second one is raised at once, for whoever does not want to wait. Works in the main thread only, as
    signals do.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interruptible:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise KeyboardInterrupt when Ctrl-C was pressed."""
        if self.asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def ended_by() -> tuple[signal.Signals, ...]:
    """What asks this process to end. A terminal that goes away does, but not where `nohup` said to outlive
    it.
    """
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in _ENDED_BY if number != signal.SIGHUP or not outlives)


def signal_source(number: int) -> str:
    """The sender of a signal as far as it can be known: the keeper, a key of the terminal, or the signal
    itself.
    """
    keeper = os.environ.get(KEEPER)
    if keeper is not None and os.getppid() != int(keeper):
        return "robo-rl up is gone"
    if number == signal.SIGINT:
        if keeper is not None:  # a session of its own: the terminal's Ctrl-C does not reach it
            return "robo-rl up stops it"
        if _at_the_terminal():
            return "Ctrl-C"
    if number == signal.SIGHUP:
        return "the terminal is gone"
    return signal.Signals(number).name


def _at_the_terminal() -> bool:
    """Would a Ctrl-C of the terminal come here?"""
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):  # no terminal, closed, or none at all
        return False
