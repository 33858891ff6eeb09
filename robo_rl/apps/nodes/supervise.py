"""Supervises several processes: their lines in one terminal, and one safe stop for all of them.

They start in order and stop in reverse, one after the other: commanding nodes first, then the filter, which
brakes, and the robot last. The stop begins at Ctrl-C, at SIGTERM, after `seconds`, or when any of them ends.
When one ends by itself, the filters are asked to brake at once, before the commanding nodes have stopped.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from robo_rl.apps.nodes import node_life
from robo_rl.apps.nodes.node_life import SAME_S
from robo_rl.core.errors import BusNameError, LockedError
from robo_rl.core.files.lock import FolderLock
from robo_rl.core.process_signals import stopped_by
from robo_rl.runs.signals import SUPERVISOR, signal_source

REST_S = 8.0  # longest time for a node to come to rest; braking takes 5 s at most
LANDS = "flight_filter"  # node that may need the time of a landing: without it the craft falls
FILTERS = ("safety_filter", LANDS)  # nodes that bring the robot to rest
LOOK_S = 0.05  # longest time between two looks at signals and lines; the end of a node is noticed at once
# longest time after a second SIGINT: nodes hold at once, but ending them takes seconds on a busy machine
KILL_S = 5.0


class Signals:
    """Signals received from the user. `count` grows with each; the second one means: stop at once."""

    def __init__(self) -> None:
        self.why, self.count = "", 0

    def note(self, number: int, frame: FrameType | None) -> None:
        self.why = self.why or signal_source(number)
        self.count += 1


@contextmanager
def noted() -> Iterator[Signals]:
    """Note signals inside the block instead of being interrupted by them."""
    signals = Signals()
    before = {number: signal.signal(number, signals.note) for number in stopped_by()}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def terminal_kept() -> Iterator[None]:
    """Restore the terminal's settings after the block, even if the process that read its keys was killed."""
    before = termios.tcgetattr(0) if os.isatty(0) else None
    try:
        yield
    finally:
        with suppress(OSError, termios.error):  # the terminal is gone
            if (
                before is not None and os.tcgetpgrp(0) == os.getpgrp()
            ):  # a background process that sets it is halted
                termios.tcsetattr(0, termios.TCSANOW, before)


def namespace_lock(domain: int, namespace: str) -> FolderLock:
    """Lock that allows one set of nodes per domain and namespace on this machine.

    Two safety filters would command one robot. Raises BusNameError while another process holds the lock.
    """
    name = f"robo_rl-{os.getuid()}-{domain}-{namespace.strip('/').replace('/', '.') or 'root'}"
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(exist_ok=True)
    try:
        return FolderLock(folder, "namespace")
    except LockedError:
        raise BusNameError(
            f"Another `robo-rl up`, `robo-rl record` or `ros2 launch` runs in ROS domain {domain} and "
            f"namespace '{namespace or '/'}': two safety filters would send to one robot. "
            "Stop it, or choose another ROS_DOMAIN_ID or namespace=."
        ) from None


class Supervisor:
    """Runs `commands` (name -> argv). `say` prints one line.

    key_reader: the process that reads the terminal's keys. environment: variables to add to that of this
    process. name: of the verb, which begins its own lines.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        say: Callable[[str], None] = print,
        key_reader: str | None = None,
        environment: Mapping[str, str] | None = None,
        name: str = "up",
    ) -> None:
        self._environment, self._name = dict(environment or {}), name
        self._say, self._commands, self._key_reader = say, commands, key_reader
        # A node that reads keys may write a status without the end of a line: clear it before a line.
        self._clear = "\r\x1b[K" if key_reader and sys.stdout.isatty() else ""
        self._width = max(map(len, commands))
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._asked_s: dict[str, float] = {}  # node -> time of the request to stop
        self._ends = select.poll()  # reports ended processes; without pidfd it only waits
        self._pidfds: list[int] = []
        self._readers: list[threading.Thread] = []

    def run(self, seconds: float | None = None) -> int:
        """Run until everything has stopped. Returns 0 after a request, 3 when a process ended by itself."""
        with noted() as signals, terminal_kept() if self._key_reader else nullcontext():
            why, code = "", 0
            try:
                for name, argv in self._commands.items():
                    self._start(name, argv)
                why, code = self._watch(signals, None if seconds is None else time.monotonic() + seconds)
            finally:
                if code:
                    self._brake()
                alive = [name for name in reversed(self._running) if self._running[name].poll() is None]
                self._say(f"{self._name}: {why or 'an error'}: stopping {', '.join(alive) or 'nothing'}.")
                for name in reversed(list(self._running)):
                    self._stop(name, signals)
                for reader in self._readers:
                    reader.join(1.0)
                for pidfd in self._pidfds:
                    os.close(pidfd)
                self._print()
            self._say(f"{self._name}: all nodes are stopped.")
            return code

    def _start(self, name: str, argv: Sequence[str]) -> None:
        # A session of its own: the terminal's Ctrl-C reaches the supervisor alone, and each node gets one
        # signal in its turn.
        supervisor = f"{os.getpid()} {self._name}"
        process = subprocess.Popen(
            argv,
            stdin=None if name == self._key_reader else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | self._environment | {"PYTHONUNBUFFERED": "1", SUPERVISOR: supervisor},
            start_new_session=True,
        )
        self._running[name] = process
        with suppress(AttributeError, OSError):  # neither macOS nor Linux before 5.3 has it
            self._pidfds.append(os.pidfd_open(process.pid))
            self._ends.register(self._pidfds[-1], select.POLLIN)
        assert process.stdout is not None
        reader = threading.Thread(target=self._read, args=(name, process.stdout), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _read(self, name: str, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._lines.put(f"{name:<{self._width}} | {line.decode(errors='replace').rstrip()}")

    def _watch(self, signals: Signals, until_s: float | None) -> tuple[str, int]:
        """Wait for a reason to stop; returns (reason, exit code)."""
        while True:
            self._print()
            if signals.why:
                return signals.why, 0
            if until_s is not None and time.monotonic() >= until_s:
                return "the time is over", 0
            for name, process in self._running.items():
                if (code := process.poll()) is not None:
                    return f"{name} has ended by itself ({ending(code)})", 3
            self._ends.poll(1e3 * LOOK_S)

    def _brake(self) -> None:
        """Ask the filters to brake; other nodes are asked in their turn.

        By SIGTERM, which also ends a filter that is still being loaded, without a traceback.
        """
        for name in FILTERS:
            if name in self._running:
                self._ask(name, signal.SIGTERM)

    def _ask(self, name: str, number: signal.Signals = signal.SIGINT) -> float:
        """Ask a node to stop, once; returns the time of the request."""
        if name not in self._asked_s:
            self._asked_s[name] = time.monotonic()
            if self._running[name].poll() is None:
                self._running[name].send_signal(number)
        return self._asked_s[name]

    def _stop(self, name: str, signals: Signals) -> None:
        process, hurried = self._running[name], False
        asked_s = self._ask(name)
        late_s = asked_s + rest_s(name)
        while process.poll() is None and time.monotonic() < late_s:
            self._print()
            # A second signal of the user: hold at once. A node ignores a repetition that comes too soon.
            if signals.count > 1 and not hurried and time.monotonic() - asked_s > 1.2 * SAME_S:
                hurried = True
                process.send_signal(signal.SIGINT)
                late_s = time.monotonic() + KILL_S
            time.sleep(0.02)
        if process.poll() is None:
            process.kill()
            took = f"{KILL_S:g} s of the second request" if hurried else f"{rest_s(name):g} s"
            self._say(
                f"{self._name}: {name} did not stop within {took} and was killed; see that the robot holds."
            )
        process.wait()

    def _print(self) -> None:
        while not self._lines.empty():
            self._say(self._clear + self._lines.get())


def rest_s(name: str) -> float:
    """Longest time that a node may take to stop before it is killed."""
    return node_life.REST_S + REST_S if name == LANDS else REST_S


def ending(code: int) -> str:
    """Exit code in words."""
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
