"""Scheduling before other programs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from hardware.loop.priority import run_before_other_programs


def in_a_thread(work: Callable[[], object]) -> object:
    """What `work` returns in a thread of its own, whose scheduling ends with it."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_only_the_calling_thread_is_scheduled_first() -> None:
    """Where it is permitted; a program that it starts has ordinary priority, as has the main thread."""
    ask = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"]

    def work() -> tuple[bool, int, str]:
        permitted = run_before_other_programs()
        now = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
        return permitted, now, subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()

    permitted, now, child = in_a_thread(work)  # type: ignore[misc]
    assert now == (os.SCHED_FIFO if permitted else os.SCHED_OTHER)
    assert child == str(os.SCHED_OTHER)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_a_user_without_the_right_keeps_the_ordinary_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers EPERM."""

    def refuse(*args: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert not run_before_other_programs()
