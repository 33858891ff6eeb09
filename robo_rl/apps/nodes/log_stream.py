"""Text streams of a node: complete lines go to the log of its bus, and so to /rosout, and name arguments as
the launcher takes them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from robo_rl.apps.nodes.ros.launch_words import VARIABLE, as_started

if TYPE_CHECKING:  # see node_life
    from hardware.bus.protocol import LoggingBus


class LogStream:
    """Text stream whose lines go to the log of a bus, and to `stream` once the bus is closed."""

    def __init__(self, bus: LoggingBus, name: str, stream: TextIO, warning: bool) -> None:
        self._bus, self._prefix, self._stream, self._warning = bus, f"{name}: ", stream, warning
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            line = as_started(line)
            if line.strip() and not self._bus.log(line.removeprefix(self._prefix), self._warning):
                self._stream.write(f"{line}\n")
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def log_prints(bus: object, name: str) -> None:
    """Send further prints of this process to the log of the bus, if it has one."""
    from hardware.bus.protocol import LoggingBus

    if isinstance(bus, LoggingBus):
        sys.stdout = LogStream(bus, name, sys.stdout, warning=False)
        sys.stderr = LogStream(bus, name, sys.stderr, warning=True)


class LaunchStream:
    """Text stream whose sentences name arguments as `ros2 launch` takes them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(as_started(text))  # the sentence of a print comes in one piece
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def name_launch_arguments() -> None:
    """Let further prints of this process name arguments as `ros2 launch` takes them, if that started it."""
    if os.environ.get(VARIABLE):
        sys.stdout, sys.stderr = LaunchStream(sys.stdout), LaunchStream(sys.stderr)
