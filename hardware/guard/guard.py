"""Drives a robot from a separate process that stops the robot when the commanding process dies or stalls.

A thread cannot guard its own process: `kill -9`, or Python code that holds the interpreter, stops both. The
kernel closes this process's end of the socket when it dies; the guard notices that at once, and notices
silence after `watchdog_s`.
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

START_S = 60.0  # import of a vendor's package and connecting, which for some robots uploads a program
ANSWER_S = 2.0  # a read or a write that takes longer is a robot that no longer answers
CLOSE_S = 30.0  # a landing, at most
ROOT = Path(__file__).resolve().parents[2]


class Guarded:
    """A `Driver` whose calls run in the guard's process."""

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
        """Process id of the guard."""
        return None if self._process is None else self._process.pid

    def connect(self) -> None:
        if self._end is None:
            self.close()  # an earlier guard may still be landing the robot
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
                stdout=subprocess.DEVNULL,  # vendors' packages print to stdout
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,  # the terminal's Ctrl-C does not reach the guard
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
        """Close the socket without waiting; a guard that still runs then stops the robot."""
        if self._end is not None:
            self._end.close()
        self._end = None
