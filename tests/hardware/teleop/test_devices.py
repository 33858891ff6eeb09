"""Gamepad, keyboard and leader arm, from recorded input: event bytes, characters of a terminal, states."""

from __future__ import annotations

import os
import pty
import select
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hardware.states import ArmState
from hardware.teleop.device import NOTHING, Feedback, OperatorInput, Teleoperator
from hardware.teleop.joystick import AXIS, BUTTON, EVENT, Joystick, events, without_middle
from hardware.teleop.keyboard import HOLD_S, Keyboard
from hardware.teleop.leader import Leader
from robo_rl.core.errors import ConfigError, DriverError

NAMES = ("base", "elbow", "wrist")
# A pad as the kernel tells it: two axes and two buttons at the start (type | 0x80), then a stick to the left,
# button 4 down, the stick to its end, button 4 up. Time [ms], value, type, number; little-endian.
START = bytes.fromhex("10270000 0000 82 00 10270000 0000 82 01 10270000 0000 81 00 10270000 0000 81 04")
LEFT = bytes.fromhex("b8270000 00c0 02 00")
HELD = bytes.fromhex("c2270000 0100 01 04")
END = bytes.fromhex("cc270000 0180 02 00")
RELEASED = bytes.fromhex("d6270000 0000 01 04")


def test_event_bytes_are_parsed() -> None:
    """0xc000 is -16384, half of the range; 0x8001 is its end. An incomplete event waits for the rest."""
    found = list(events(START + LEFT + HELD + END + RELEASED + b"\x01\x02"))
    assert found[:4] == [(AXIS, 0, 0.0), (AXIS, 1, 0.0), (BUTTON, 0, 0.0), (BUTTON, 4, 0.0)]
    assert found[4:] == [
        (AXIS, 0, pytest.approx(-0.5, abs=1e-3)),
        (BUTTON, 4, 1.0),
        (AXIS, 0, -1.0),
        (BUTTON, 4, 0.0),
    ]
    assert list(events(bytes.fromhex("0000000000800200"))) == [
        (AXIS, 0, -1.0)
    ]  # -32768 is not beyond the end
    assert [without_middle(v) for v in (0.05, -0.08, 1.0, -1.0)] == [0.0, 0.0, 1.0, -1.0]


@pytest.fixture
def pad(tmp_path: Path) -> Iterator[tuple[Joystick, int]]:
    """A gamepad, and the pipe to which the test writes events."""
    path = tmp_path / "js0"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # so that the writer can open it
    writing = os.open(path, os.O_WRONLY)
    joystick = Joystick(str(path), axes=[0, 1, -1])
    joystick.connect()
    os.close(reading)
    yield joystick, writing
    joystick.close()


def test_gamepad_moves_joints_while_the_switch_is_held(
    pad: tuple[Joystick, int],
) -> None:
    joystick, kernel = pad
    assert isinstance(joystick, Teleoperator)
    os.write(kernel, START + LEFT)
    operator = joystick.get_action(0.0)
    assert not operator.held
    os.write(kernel, HELD + END)
    operator = joystick.get_action(0.02)
    assert operator.held
    assert operator.rates is not None
    assert operator.rates.tolist() == [-1.0, 0.0, 1.0]  # the third joint turns the other way by axis 0
    assert joystick.get_action(0.04).held  # no news is no release
    os.write(kernel, RELEASED)
    assert not joystick.get_action(0.06).held
    os.write(kernel, HELD)
    assert joystick.get_action(0.08).held
    os.close(kernel)
    with pytest.raises(DriverError, match="is gone"):
        joystick.get_action(0.1)


def test_a_button_sends_one_request_per_press(tmp_path: Path) -> None:
    """With or without the switch. A button that is down when teleoperation starts sends none."""
    path = tmp_path / "js0"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    kernel = os.open(path, os.O_WRONLY)
    joystick = Joystick(str(path), axes=[0], recorder_buttons=[0, 1, -1, 3])
    joystick.connect()
    try:
        os.write(kernel, button(0, 0, 0x81) + button(1, 1, 0x81) + button(4, 0, 0x81) + button(0, 1))
        assert joystick.get_action(0.0) == OperatorInput(
            False, rates=pytest.approx([0.0]), recorder_request="start"
        )
        assert joystick.get_action(0.02).recorder_request == ""  # it is still down
        os.write(kernel, button(0, 0) + button(1, 0) + HELD + button(1, 1))
        operator = joystick.get_action(0.04)
        assert (operator.held, operator.recorder_request) == (True, "success")
        os.write(kernel, button(2, 0) + button(2, 1))
        assert joystick.get_action(0.06).recorder_request == ""  # the third request has no button
        usage = (
            "button 4 held, its axes move the arm, 5 opens or closes the gripper, 0 records, 1 saves as a "
        )
        usage += "success, 3 throws away."
        assert joystick.help() == f"gamepad: {usage}"
    finally:
        joystick.close()
        os.close(reading)
        os.close(kernel)
    with pytest.raises(ConfigError, match="Button 1 is the dead-man switch and one of recorder_buttons"):
        Joystick(str(path), axes=[0], dead_man=1, recorder_buttons=[0, 1])


def button(number: int, value: int, kind: int = BUTTON) -> bytes:
    return EVENT.pack(0, value, kind, number)


def test_keys_send_requests_and_move_nothing() -> None:
    """A key that is held down repeats and sends one request; a later press sends another."""
    ours, terminal = pty.openpty()
    keyboard = Keyboard(NAMES, terminal)
    keyboard.connect()
    try:
        for at_s, key, ask in (
            (0.0, b" ", "start"),
            (3.0, b"\n", "success"),
            (6.0, b"x", "failure"),
            (9.0, b"\x7f", "discard"),
        ):
            os.write(ours, key)
            inputs = [keyboard.get_action(at_s) for _ in range(wait_polls(terminal))]
            os.write(ours, key)
            inputs += [keyboard.get_action(at_s + 0.5) for _ in range(wait_polls(terminal))]
            assert [operator.recorder_request for operator in inputs] == [ask, ""]
            assert not any(operator.held for operator in inputs)
        os.write(ours, b"\x7f")
        assert wait_polls(terminal)
        assert keyboard.get_action(12.0).recorder_request == "discard"
        assert keyboard.help().startswith(
            "keys: q a base, w s elbow, e d wrist; o opens or closes the gripper; space"
        )
    finally:
        keyboard.close()
        os.close(ours)
        os.close(terminal)


def wait_polls(terminal: int) -> int:
    """1, once the characters written to the terminal have arrived."""
    return len(select.select([terminal], [], [], 5.0)[0])


def test_missing_gamepad_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=r"js9 cannot be opened \(No such file or directory\)\. Found:"):
        Joystick(str(tmp_path / "js9"), [0]).connect()
    with pytest.raises(ConfigError, match="needs an axis"):
        Joystick(str(tmp_path / "js9"), [])


def test_key_is_held_until_its_repetition_ends() -> None:
    """A terminal reports no releases: 0.15 s after the last character the key counts as released."""
    ours, terminal = pty.openpty()
    keyboard = Keyboard(NAMES, terminal)
    keyboard.connect()
    try:
        assert isinstance(keyboard, Teleoperator)
        assert not keyboard.get_action(0.0).held
        assert os.get_blocking(terminal)  # or a long print into the same terminal would fail
        os.write(ours, b"w")
        operator = poll_until_held(keyboard, 1.0)
        assert operator.rates is not None
        assert operator.rates.tolist() == [0.0, 1.0, 0.0]
        assert keyboard.get_action(1.0 + 0.9 * HOLD_S).held
        assert not keyboard.get_action(1.0 + 1.01 * HOLD_S).held
        os.write(ours, b"wwd")  # the newest key counts
        operator = poll_until_held(keyboard, 2.0)
        assert operator.rates is not None
        assert operator.rates.tolist() == [0.0, 0.0, -1.0]
        os.write(ours, b"u")  # of joint 7, which is not there
        assert not any(keyboard.get_action(3.0 + i).held for i in range(3))
    finally:
        keyboard.close()
        os.close(ours)
        os.close(terminal)
    with pytest.raises(ConfigError, match="1 to 7 joints"):
        Keyboard(["joint"] * 9)
    reading, writing = os.pipe()
    with pytest.raises(DriverError, match="needs a terminal"):
        Keyboard(NAMES, reading).connect()
    os.close(reading)
    os.close(writing)


def poll_until_held(keyboard: Keyboard, now_s: float) -> OperatorInput:
    """Poll until characters written to the terminal have arrived."""
    for _ in range(10_000):
        if (operator := keyboard.get_action(now_s)).held:
            return operator
    raise AssertionError("the key never arrived")


class Switch:
    """A dead-man switch and a leader arm in one."""

    names = ("a", "b")

    def __init__(self) -> None:
        self.recorder_request = ""
        self.held, self.state, self.closed = False, ArmState(0.0, np.array([0.1, -0.2]), np.zeros(0)), 0

    def connect(self) -> None:
        """Nothing to open."""

    def send_feedback(self, feedback: Feedback) -> None:
        """Nothing to show."""

    def help(self) -> str:
        return "a switch"

    def get_action(self, now_s: float) -> OperatorInput:
        return OperatorInput(self.held, recorder_request=self.recorder_request)

    def read(self) -> ArmState:
        return self.state

    def close(self) -> None:
        self.closed += 1


def test_leader_needs_the_switch_and_recent_states() -> None:
    both = Switch()
    leader = Leader(both, both, signs=[1.0, -1.0], offsets_rad=[0.0, 0.5])  # type: ignore[arg-type]
    leader.connect()
    assert leader.get_action(0.0) == NOTHING
    both.held = True
    both.recorder_request = "success"
    operator = leader.get_action(0.05)
    assert operator.position_rad == pytest.approx([0.1, 0.7])
    assert operator.recorder_request == "success"
    both.held = False
    assert leader.get_action(0.05) == OperatorInput(
        False, recorder_request="success"
    )  # also without the switch
    both.held, both.recorder_request = True, ""
    assert leader.get_action(0.2) == NOTHING  # its last state is 0.2 s old
    both.state = ArmState(0.2, np.array([0.1, np.nan]), np.zeros(0))
    assert leader.get_action(0.2) == NOTHING
    leader.close()
    assert both.closed == 2
    both.closed = 0
    with pytest.raises(ConfigError, match="2 signs of 1 or -1"):
        Leader(both, both, signs=[2.0, 1.0]).connect()  # type: ignore[arg-type]
