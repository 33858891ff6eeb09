"""Processes started by `robo-rl up` and `robo-rl demo`: they end with their parent, and printing never fails.

`python -m robo_rl.apps.nodes.process <parent's process id> <module> <words>` runs a module as a program that
receives SIGTERM when its parent is gone, also after `kill -9`: a node comes to rest, a verb saves its work.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

from robo_rl.core.process_signals import stop_with_parent


def child_command(module: str, words: Sequence[str] = ()) -> list[str]:
    """Command line of a process that runs `module` and stops when this process ends."""
    return [sys.executable, "-m", "robo_rl.apps.nodes.process", str(os.getpid()), module, *words]


class BestEffortStream:
    """Text stream that drops output without a reader instead of raising OSError."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def ignore_lost_readers() -> None:
    """Make stdout and stderr best-effort: a print without a reader raises no error.

    A program that holds a robot continues when its terminal or `robo-rl up` is gone. An error raised by a
    print while it brakes or lands would abort the safe stop.
    """
    sys.stdout, sys.stderr = BestEffortStream(sys.stdout), BestEffortStream(sys.stderr)


if __name__ == "__main__":
    parent_pid, program = sys.argv[1:3]
    stop_with_parent(int(parent_pid))
    sys.argv = [program, *sys.argv[3:]]
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:  # during the program's imports; later it answers a signal itself
        print(f"{' '.join(sys.argv[1:2]) or program}: interrupted.", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
