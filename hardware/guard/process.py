"""The guard's process: one driver, one socket, one deadline. Started only by `hardware.guard.guard`.

    python -m hardware.guard.process <file descriptor> <pid of the commanding process>

It stops the robot when a command is `watchdog_s` late, when the commanding process is gone, and on SIGTERM.
If a call of the vendor's package does not return, this process ends, and the robot's own watchdog stops it.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hardware.driver import Driver, make_driver
from hardware.guard.guard import ANSWER_S, CLOSE_S, START_S
from hardware.guard.wire import error_to_json, from_json, receive, send, to_json
from robo_rl.core.errors import ConfigError, DriverError, RoboRLError


class Watchdog:
    """Executes one driver call at a time and limits the time between commands."""

    def __init__(self, driver: Driver[Any, Any], watchdog_s: float, feeder: str) -> None:
        self._driver, self._watchdog_s, self._feeder = driver, watchdog_s, feeder
        self._deadline_s: float | None = None  # deadline of the next command; None while none is due
        self._tripped = ""

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """Reply to one call. Errors of this project are sent as sentences."""
        try:
            with at_most(START_S if message["call"] == "connect" else ANSWER_S):
                return {"value": to_json(self._do(message)), "names": list(self._driver.names)}
        except RoboRLError as error:
            return error_to_json(error)
        except (KeyError, TypeError) as error:
            return error_to_json(ConfigError(f"The driver cannot use this command: {error}."))

    def _do(self, message: dict[str, Any]) -> Any:
        call = message["call"]
        if call == "connect":
            self._tripped, self._deadline_s = "", None
            return self._driver.connect()
        if call == "read":
            return self._driver.read()
        if call == "stop":
            self._deadline_s = None
            return self._driver.stop(message["reason"])
        if self._tripped:
            raise DriverError(self._tripped)
        command = from_json(message["command"])
        late_s = 0.0 if self._deadline_s is None else time.monotonic() - self._deadline_s
        if late_s > 0.0:  # the call waited in the socket while this process did not run
            self.trip(f"the command came {1e3 * late_s:.0f} ms too late")
            raise DriverError(self._tripped)
        first = self._deadline_s is None
        if (
            first
        ):  # set before sending: an end in the middle of the call must find that the robot was commanded
            self._deadline_s = time.monotonic() + self._watchdog_s
        try:
            sent = self._driver.write(command)
        except RoboRLError:
            self._deadline_s = None if first else self._deadline_s  # nothing was sent
            raise
        # Counted from the end of the call: the limit is on silence, not on the robot's
        # slowness.
        self._deadline_s = time.monotonic() + self._watchdog_s
        return sent

    def left_s(self) -> float | None:
        """Time to wait for the next call; None waits without limit."""
        return None if self._deadline_s is None else max(1e-4, self._deadline_s - time.monotonic())

    def silence(self) -> None:
        self.trip(f"no command came for {1e3 * self._watchdog_s:.0f} ms")

    def trip(self, why: str) -> None:
        """Bring the robot to rest and refuse commands from now on."""
        self._deadline_s = None
        if not self._tripped:
            self._tripped = f"The driver's watchdog stopped the robot: {why}. Connect again to go on."
            with at_most(ANSWER_S):
                self._driver.stop(why)

    def feeder_gone(self) -> None:
        """Stop the robot, unless the commanding process has closed the connection itself."""
        if self._deadline_s is not None:
            self.trip(f"the process that fed it ({self._feeder}) is gone")


def serve(end: socket.socket, feeder: str) -> None:
    order = receive(end)
    if order is None:
        return
    try:
        driver = make_driver(order["driver"], order["settings"], order["watchdog_s"])
    except RoboRLError as error:
        return _refuse(end, error)
    except (TypeError, ValueError, ArithmeticError) as error:  # otherwise the feeder is told of a dead guard
        wrong = f"The driver '{order['driver']}' cannot use its settings: {error}. Nothing was connected."
        return _refuse(end, ConfigError(wrong))
    watchdog = Watchdog(driver, float(order["watchdog_s"]), feeder)
    try:
        loop(end, watchdog)
    finally:
        try:
            watchdog.feeder_gone()
        finally:
            with at_most(CLOSE_S):
                driver.close()


def _refuse(end: socket.socket, error: RoboRLError) -> None:
    receive(end)  # `connect`, which is told why
    send(end, error_to_json(error))


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End this process when the block takes longer.

    The kernel does it, even while C++ holds the interpreter.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def loop(end: socket.socket, watchdog: Watchdog) -> None:
    while True:
        end.settimeout(watchdog.left_s())
        try:
            message = receive(end)
        except TimeoutError:
            watchdog.silence()
            continue
        if message is None or message["call"] == "close":
            return
        try:
            send(end, watchdog.answer(message))
        except OSError:
            return


def terminated(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # through the `finally` of `serve`, which stops the robot


def main() -> None:
    signal.signal(signal.SIGTERM, terminated)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with socket.socket(fileno=int(sys.argv[1])) as end:
        serve(end, f"pid {sys.argv[2]}")


if __name__ == "__main__":
    main()
