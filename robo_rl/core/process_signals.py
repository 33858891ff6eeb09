"""Signals that end a process, and its end when its parent dies, however the parent dies."""

from __future__ import annotations

import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1  # linux/prctl.h
ASK = signal.SIGUSR1  # from `ros2 launch` to a node: end; never a second request, unlike the others
_ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ended_by() -> tuple[signal.Signals, ...]:
    """Signals that end this process: SIGINT, SIGTERM and, unless `nohup` ignores it, SIGHUP."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in _ENDED_BY if number != signal.SIGHUP or not ignored)


def stopped_by() -> tuple[signal.Signals, ...]:
    """Signals that stop a robot: those of `ended_by`, and SIGQUIT (Ctrl-\\), by which the kernel would end a
    node without its last message.
    """
    return (*ended_by(), signal.SIGQUIT)


def leave_to_parent(*numbers: signal.Signals) -> None:
    """Ignore signals that a terminal or a job scheduler sends to every process of a program: the parent
    handles them, and ends this process.
    """
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def exit_with_parent() -> None:
    """Exit this worker as soon as its parent is gone; does nothing in a process without a parent.

    For workers of `multiprocessing`, which compute and have nothing to save. A thread watches the parent.
    """
    import multiprocessing as mp
    from multiprocessing import connection

    parent = mp.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def stop_with_parent(parent: int) -> None:
    """Let the kernel send SIGTERM to this process when its parent dies; exit now if the parent is dead
    already.

    For programs that must stop a robot or save before they end. The kernel sends the signal when the parent's
    thread that started this process ends: start it from a thread that lives as long as the parent.
    """
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit("The parent process has ended.")
