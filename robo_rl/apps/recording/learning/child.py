"""Processes that the app starts: their lines are kept, and they end with the app."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from robo_rl.apps.nodes.supervise import ending

KEPT = 12  # newest lines
PROGRESS_BAR = "%|"  # in a line of a progress bar, which is no message
LOWER = 10  # by how much a process with low priority is nicer


def how_ended(code: int, last: str) -> str:
    """Clause on the end of a process: the signal that killed it, or its exit code and its last line."""
    if code >= 0:
        return f"has ended with exit code {code}: {last or 'without a word'}"
    memory = " (from outside, or out of memory)" if code == -signal.SIGKILL else ""
    return f"was {ending(code)}{memory}"  # its last line is an earlier message


class Child:
    """One process. argv: as of `robo_rl.apps.nodes.process.child_command`, so that it ends with this process.

    log: called with each line. nice: True for work that may not disturb the control loop.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
        nice: bool = False,
    ) -> None:
        self.name, self._log = name, log
        self.lines: deque[str] = deque(maxlen=KEPT)
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(environment or {}),
        )
        if nice:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, LOWER)
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def code(self) -> int | None:
        """Exit code; None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._reader.join(0.5)  # its last lines say why
        return code

    @property
    def last(self) -> str:
        """Last line; empty before the first."""
        return self.lines[-1] if self.lines else ""

    def ask_to_stop(self) -> None:
        """Send SIGINT, upon which nodes come to rest and verbs save."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def end(self, wait_s: float) -> None:
        """Wait for the end, and kill what does not end in time."""
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for raw in stream:
                line = raw.decode(errors="replace").rstrip().rpartition("\r")[2]
                if line and PROGRESS_BAR not in line:
                    self.lines.append(line)
                    self._log(f"{self.name}: {line}")
