"""The guard without a robot: calls to its driver, when it stops the driver, and how it ends."""

from __future__ import annotations

import json
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.guard.guard import Guarded
from hardware.guard.process import Watchdog, loop
from hardware.guard.wire import error_from_json, error_to_json, from_json, receive, send, to_json
from hardware.states import ArmState, Attitude, JointCommand, QuadState
from robo_rl.core.errors import ConfigError, DriverError, MissingDependencyError, RoboRLError
from tests.hardware.peers import ROOT

LIMIT_S = 0.1
floats = st.floats(allow_nan=True, allow_infinity=True)


class Arm:
    """A driver that records its calls and their times."""

    names = ("a", "b")

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self.fault = ""

    def connect(self) -> None:
        self.calls.append(("connect", time.monotonic()))

    def read(self) -> ArmState:
        return ArmState(1.5, np.array([0.1, -0.2]), np.zeros(0), speed_scaling=0.5)

    def write(self, command: JointCommand) -> JointCommand:
        if self.fault:
            raise DriverError(self.fault)
        self.calls.append(("write", time.monotonic()))
        return JointCommand(np.clip(command.position_rad, -1.0, 1.0))

    def stop(self, reason: str) -> None:
        self.calls.append((f"stop: {reason}", time.monotonic()))

    def close(self) -> None:
        self.calls.append(("close", time.monotonic()))


class Line:
    """Socket of this process to a guard that runs in a thread."""

    def __init__(self) -> None:
        self.arm = Arm()
        self.end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.watchdog = Watchdog(self.arm, LIMIT_S, "pid 1")
        self.thread = threading.Thread(target=self._run, args=(theirs,))
        self.thread.start()

    def _run(self, theirs: socket.socket) -> None:
        with theirs:
            loop(theirs, self.watchdog)
            self.watchdog.feeder_gone()

    def ask(self, call: str, **more: Any) -> dict[str, Any]:
        send(self.end, {"call": call, **more})
        answer = receive(self.end)
        assert answer is not None
        return answer

    def write(self) -> dict[str, Any]:
        return self.ask("write", command=to_json(JointCommand(np.array([0.5, 9.0]))))

    def stops(self) -> list[str]:
        return [call for call, _ in self.arm.calls if call.startswith("stop")]


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """A guard in a thread. Threads get no signals, so the limit on a call's time is tested separately."""
    monkeypatch.setattr("hardware.guard.process.signal.setitimer", lambda which, seconds: None)
    made = Line()
    yield made
    made.end.close()
    made.thread.join(5.0)
    assert not made.thread.is_alive()


def test_watchdog_starts_with_the_first_command(line: Line) -> None:
    assert line.ask("connect")["names"] == ["a", "b"]
    time.sleep(2.0 * LIMIT_S)
    state = from_json(line.ask("read")["value"])
    assert (state.received_s, state.position_rad.tolist(), state.speed_scaling) == (1.5, [0.1, -0.2], 0.5)
    assert from_json(line.write()["value"]).position_rad.tolist() == [0.5, 1.0]  # what was really sent
    assert not line.stops()


def test_silence_stops_once_until_connect(line: Line) -> None:
    line.ask("connect")
    for _ in range(5):
        line.write()
        time.sleep(0.3 * LIMIT_S)
    assert not line.stops()
    time.sleep(5.0 * LIMIT_S)
    assert line.stops() == ["stop: no command came for 100 ms"]
    for _ in range(2):
        answer = line.write()
        assert answer == {
            "error": "DriverError",
            "message": "The driver's watchdog stopped the robot: no command came for 100 ms. "
            "Connect again to go on.",
        }
    stopped_s = line.arm.calls[-1][1]
    written_s = [at for call, at in line.arm.calls if call == "write"][-1]
    assert LIMIT_S <= stopped_s - written_s < 5.0 * LIMIT_S
    assert "value" in line.ask("read")
    line.ask("connect")
    assert "value" in line.write()


def test_requested_stop_ends_the_watch(line: Line) -> None:
    line.ask("connect")
    line.write()
    line.ask("stop", reason="Ctrl-C")
    time.sleep(2.0 * LIMIT_S)
    assert line.stops() == ["stop: Ctrl-C"]


def test_closed_socket_stops_the_robot_at_once(line: Line) -> None:
    line.ask("connect")
    line.write()
    gone_s = time.monotonic()
    line.end.close()
    line.thread.join(2.0)
    assert line.stops() == ["stop: the process that fed it (pid 1) is gone"]
    assert line.arm.calls[-1][1] - gone_s < 2.0 * LIMIT_S


def test_refused_commands_do_not_feed_the_watchdog(line: Line) -> None:
    """A program whose commands are all refused commands nothing, so the robot is stopped."""
    line.ask("connect")
    line.write()
    line.arm.fault = "It refuses. Nothing was sent."
    end_s = time.monotonic() + 2.0 * LIMIT_S
    answers = set()
    while time.monotonic() < end_s:
        answers.add(line.write()["message"].split(":")[0])
        time.sleep(0.1 * LIMIT_S)
    assert answers == {"It refuses. Nothing was sent.", "The driver's watchdog stopped the robot"}
    assert len(line.stops()) == 1
    assert (
        "cannot use this command" in line.ask("write", command={"record": "Nonsense"})["message"]
        or line.stops()
    )


@given(floats, st.lists(floats, max_size=7), st.text(max_size=20), st.booleans())
def test_records_arrive_bit_for_bit(number: float, values: list[float], text: str, flag: bool) -> None:
    state = QuadState(
        number, np.array(values), np.array(values), np.zeros(3), np.zeros(3), number, flag, fault=text
    )
    found = from_json(json.loads(json.dumps(to_json(state))))
    assert np.array_equal(found.position_m, np.array(values, float), equal_nan=True)
    assert found.received_s == number or (math.isnan(number) and math.isnan(found.received_s))
    assert (found.armed, found.fault) == (flag, text)
    tilted = from_json(to_json(Attitude(np.array([1.0, 0.0, 0.0, 0.0]), np.float64(0.5))))  # type: ignore[arg-type]
    assert (tilted.quat_wxyz.shape, tilted.thrust) == ((4,), 0.5)


@pytest.mark.parametrize("kind", [DriverError, MissingDependencyError, ConfigError, RoboRLError])
def test_errors_keep_their_class(kind: type[RoboRLError]) -> None:
    error = error_from_json(error_to_json(kind("a sentence")))
    assert type(error) is kind
    assert str(error) == "a sentence"
    assert type(error_from_json({"error": "ZeroDivisionError", "message": "m"})) is DriverError


def test_hanging_call_ends_the_guard() -> None:
    """The kernel ends the guard, also while C code holds the interpreter: here an endless regex."""
    code = (
        "import re, signal\nfrom hardware.guard.process import at_most\nsignal.signal(signal.SIGALRM, "
        "signal.SIG_DFL)\nwith at_most(5.0):\n    pass\nwith at_most(0.2):\n    re.match('(a+)+$', 40 * 'a' "
        "+ 'b')\n"
    )
    begin_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=20)
    assert done.returncode == -14
    assert time.monotonic() - begin_s < 10.0


def test_misuse_of_the_guard_is_refused() -> None:
    with pytest.raises(DriverError, match=r"is not connected\. Call connect\(\) first"):
        Guarded("ur", {"host": "127.0.0.1"}, 0.1).read()
    with pytest.raises(ConfigError, match="neither a number, text nor a list"):
        Guarded("ur", {"host": object()}, 0.1)
    unknown = Guarded("urr", {}, 0.1)
    with pytest.raises(DriverError, match="Did you mean 'ur'"):
        unknown.connect()
    with pytest.raises(DriverError, match="has ended"):
        unknown.read()
    for _ in range(2):
        unknown.close()
