"""Who asked a program to end, in the words that its terminal shows. A signal does not name its sender."""

from __future__ import annotations

import os
import signal
import sys

KEEPER = "ROBO_RL_KEEPER"  # process id of the `robo-rl up` that looks after this node
ENDED_BY = (signal.SIGINT, signal.SIGTERM)


def asker(number: int) -> str:
    """The sender of a SIGINT or SIGTERM as far as it can be known: the keeper, a key of the terminal, or the signal."""
    keeper = os.environ.get(KEEPER)
    if keeper is not None and os.getppid() != int(keeper):
        return "robo-rl up is gone"
    if number == signal.SIGINT:
        if keeper is not None:  # a session of its own: the terminal's Ctrl-C does not reach it
            return "robo-rl up stops it"
        if _at_the_terminal():
            return "Ctrl-C"
    return signal.Signals(number).name


def _at_the_terminal() -> bool:
    """Would a Ctrl-C of the terminal come here?"""
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):  # no terminal, closed, or none at all
        return False
