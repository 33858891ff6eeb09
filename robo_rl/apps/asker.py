"""Who asked a program to end, in the words that its terminal shows. A signal does not name its sender."""

from __future__ import annotations

import os
import signal
import sys

KEEPER = "ROBO_RL_KEEPER"  # process id of the `robo-rl up` that looks after this node
_ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ended_by() -> tuple[signal.Signals, ...]:
    """What asks this process to end. A terminal that goes away does, but not where `nohup` said to outlive it."""
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in _ENDED_BY if number != signal.SIGHUP or not outlives)


def asker(number: int) -> str:
    """The sender of a signal as far as it can be known: the keeper, a key of the terminal, or the signal itself."""
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
