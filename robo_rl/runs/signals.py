"""Signals that end a program: stop requests between two steps of a loop, and the sender's name."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from robo_rl.core.process_signals import ASK, ended_by, stopped_by

SAME_S = 0.5
SUPERVISOR = "ROBO_RL_SUPERVISOR"  # process id and verb of what supervises this node, such as "812 record"


class StopRequest:
    """Flag that the first signal sets; a second one raises KeyboardInterrupt at once.

    Signals within `SAME_S` of the first count as the same request: the kernel signals the child of a dead
    parent once for each of the parent's threads. Forked children (data loaders) leave the decision to their
    parent. say: print that the program is stopping.
    """

    def __init__(self, say: bool = True) -> None:
        self.requested, self._requested_s, self._pid, self._say = False, 0.0, os.getpid(), say

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        if os.getpid() != self._pid:
            _in_child(number)
            return
        if number == signal.SIGHUP:
            _leave_the_terminal()
        if not self.requested:
            self.requested, self._requested_s = True, time.monotonic()
            if self._say:  # os.write takes no lock and no buffer, so it is safe inside a signal handler
                os.write(2, b"\nrobo-rl: stopping when this step is done; once more stops at once.\n")
        elif time.monotonic() - self._requested_s > SAME_S:
            raise KeyboardInterrupt  # the verb tells what it has saved


def _in_child(number: int) -> None:
    """Ignore Ctrl-C and the end of the terminal, which every process is told; exit on SIGTERM as without a
    handler.
    """
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _leave_the_terminal() -> None:
    """Drop further output to a terminal that is gone: writing to it would fail, before the state is saved."""
    for number in (1, 2):
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):  # a terminal, or a pipe whose reader ends with it
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, number)
                os.close(nowhere)
        except OSError:  # this output is closed
            continue


@contextmanager
def stop_between_steps(say: bool = True, *, of_robot: bool = False) -> Iterator[StopRequest]:
    """Let SIGINT, SIGTERM and the SIGHUP of a lost terminal only set `requested` inside the block. say: see
    `StopRequest`. of_robot: SIGQUIT, too, for a block in which a robot moves.

    Outside the main thread, the only one that can handle signals, `requested` stays False.
    """
    request = StopRequest(say)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = stopped_by() if of_robot else ended_by()
    before = {number: signal.signal(number, request.handle) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def signal_source(number: int) -> str:
    """Name of a signal's sender if it is known (`robo-rl <verb>`, the terminal), else of the signal."""
    supervisor, _, verb = os.environ.get(SUPERVISOR, "").partition(" ")
    if supervisor and os.getppid() != int(supervisor):
        return f"robo-rl {verb} is gone"
    if number == signal.SIGINT:
        if supervisor:  # the node has its own session, which the terminal's Ctrl-C does not reach
            return f"robo-rl {verb} stops it"
        if _at_the_terminal():
            return "Ctrl-C"
    if number == ASK:
        return "its launcher stops it"
    if number == signal.SIGHUP:
        return "the terminal is gone"
    return signal.Signals(number).name


def _at_the_terminal() -> bool:
    """True if Ctrl-C in the terminal reaches this process."""
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):  # the terminal is closed, or there is none
        return False
