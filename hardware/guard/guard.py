"""The guard: a driver in a process of its own, which stops the robot when the process that feeds it dies or
stalls.

A thread cannot guard its own process: kill -9, or pure-Python work that holds the interpreter, stops both.
The kernel closes our end of the socket the instant we die; the guard sees that at once, and sees silence
after `watchdog_s`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hardware.guard.wire import error_from_json, from_json, receive, send, to_json
from robo_rl.core.errors import ConfigError, DriverError

START_S = 60.0  # to import a vendor's package and to connect, which for some robots uploads a program
ANSWER_S = 2.0  # a read or a write that takes longer is a robot that no longer answers
CLOSE_S = 30.0  # a landing, at most
ROOT = Path(__file__).resolve().parents[2]


class Guarded:
    """A `Driver` whose calls are done by the guarded process."""

    def __init__(self, name: str, settings: Mapping[str, Any], watchdog_s: float) -> None:
        self._name, self._watchdog_s = name, watchdog_s
        self._names: tuple[str, ...] = ()
        self._end: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._order = json.dumps({"driver": name, "settings": dict(settings), "watchdog_s": watchdog_s})
        except TypeError as error:
            raise ConfigError(
                f"A setting of the driver '{name}' is neither a number, text nor a list: {error}."
            ) from error

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def pid(self) -> int | None:
        """Process id of the guarded process."""
        return None if self._process is None else self._process.pid

    def connect(self) -> None:
        if self._end is None:
            self.close()  # of one that was given up, and may still be landing
            self._start()
        self._names = tuple(self._ask({"call": "connect"}, START_S)["names"])

    def read(self) -> Any:
        return from_json(self._ask({"call": "read"}, ANSWER_S)["value"])

    def write(self, command: Any) -> Any:
        return from_json(self._ask({"call": "write", "command": to_json(command)}, ANSWER_S)["value"])

    def stop(self, reason: str) -> None:
        if self._end is not None:
            self._ask({"call": "stop", "reason": reason}, ANSWER_S)

    def close(self) -> None:
        end, process, self._end, self._process = self._end, self._process, None, None
        if end is not None:
            with contextlib.suppress(OSError):
                send(end, {"call": "close"})
            end.close()
        if process is None:
            return
        try:
            process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hardware.guard.process", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # vendors' packages print
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C in the terminal is for us; the guard ends when we do
            )
        self._end = ours
        self._end.send(self._order.encode())

    def _ask(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._end is None:
            raise DriverError(f"The driver '{self._name}' is not connected. Call connect() first.")
        self._end.settimeout(timeout_s)
        try:
            send(self._end, message)
            answer = receive(self._end)
        except TimeoutError as error:
            self._give_up()
            raise DriverError(
                f"The driver '{self._name}' did not answer '{message['call']}' within {timeout_s:g} s. The "
                "robot was given up; see that it rests before you connect again."
            ) from error
        except OSError:
            answer = None
        if answer is None:
            self._give_up()
            raise DriverError(
                f"The process of the driver '{self._name}' has ended. What the robot does now is its own "
                "watchdog's matter; see that it rests before you connect again."
            )
        if "error" in answer:
            raise error_from_json(answer)
        return answer

    def _give_up(self) -> None:
        """Let go without waiting; the guard, if it still lives, stops the robot because we are gone."""
        if self._end is not None:
            self._end.close()
        self._end = None
