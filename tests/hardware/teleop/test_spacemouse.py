"""A SpaceMouse from recorded reports, over a socket that keeps their borders as hidraw does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.teleop.device import OperatorInput, Teleoperator
from hardware.teleop.spacemouse import STILL_S, SpaceMouse, find_spacemouse, in_base, parse_report
from robo_rl.core.errors import ConfigError, DriverError

# Reports of a SpaceMouse Compact: the cap pushed away from the user to its end, then half turned about the
# vertical (z points down); both buttons pressed.
PUSHED = bytes.fromhex("01 0000 a2fe 0000")
TURNED = bytes.fromhex("02 0000 0000 af00")
LEFT, BOTH, NONE = (bytes.fromhex(f"03 {bits}") for bits in ("0100", "0300", "0000"))


class Mouse:
    """The device, and the end of the socket on which the test writes reports."""

    def __init__(self, gripper_button: int = 1) -> None:
        self.kernel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(False)
        self.device = SpaceMouse(
            "/dev/hidraw0", 0, gripper_button, opened=lambda path: theirs.detach(), recorder_buttons=[3]
        )
        self.device.connect()

    def get(self, now_s: float, *reports: bytes) -> OperatorInput:
        for report in reports:
            self.kernel.send(report)
        return self.device.get_action(now_s)


@pytest.fixture
def mouse() -> Iterator[Mouse]:
    made = Mouse()
    yield made
    made.device.close()
    made.kernel.close()


def test_cap_moves_the_tool_while_the_button_is_held(mouse: Mouse) -> None:
    """Away from the user is forward; clockwise from above is a negative turn about the vertical."""
    assert isinstance(mouse.device, Teleoperator)
    operator = mouse.get(0.0, PUSHED, TURNED)
    assert not operator.held
    operator = mouse.get(0.02, LEFT)
    assert operator.held
    assert operator.twist == pytest.approx([1.0, 0.0, 0.0, 0.0, 0.0, -(0.5 - 0.05) / 0.95])
    assert mouse.get(0.04, NONE).held is False


def test_newer_devices_send_six_axes_in_one_report(mouse: Mouse) -> None:
    operator = mouse.get(0.0, LEFT, b"\x01" + struct.pack("<6h", 350, 0, -350, 0, 175, 0))
    assert operator.twist == pytest.approx([0.0, -1.0, 1.0, -(0.5 - 0.05) / 0.95, 0.0, 0.0])


def test_each_press_toggles_the_gripper_once(mouse: Mouse) -> None:
    assert [
        mouse.get(0.02 * i, *reports).gripper_toggle for i, reports in enumerate([[LEFT], [BOTH], []])
    ] == [
        False,
        True,
        False,
    ]
    assert mouse.get(0.1, bytes.fromhex("03 0900")).recorder_request == "start"
    assert mouse.get(0.12).recorder_request == ""


def test_mouse_may_have_no_button_for_the_gripper() -> None:
    """gripper_button: -1 ended teleoperation by a negative shift."""
    mouse = Mouse(gripper_button=-1)
    operator = mouse.get(0.0, BOTH)
    assert (operator.held, operator.gripper_toggle) == (True, False)
    assert "gripper" not in mouse.device.help()
    mouse.device.close()
    mouse.kernel.close()


def test_cap_without_reports_counts_as_still(mouse: Mouse) -> None:
    """A wireless one whose battery is empty would go on for ever."""
    mouse.get(0.0, LEFT, PUSHED)
    for now_s, forward in ((0.9 * STILL_S, 1.0), (1.1 * STILL_S, 0.0)):
        operator = mouse.get(now_s)
        assert operator.twist is not None
        assert operator.twist[0] == forward


def test_unplugged_mouse_is_reported(mouse: Mouse) -> None:
    mouse.get(0.0, LEFT, PUSHED)
    mouse.kernel.close()
    for _ in range(2):
        with pytest.raises(DriverError, match="/dev/hidraw0 is gone"):
            mouse.get(0.02)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=20), max_size=10))
def test_any_reports_give_a_finite_twist(reports: list[bytes]) -> None:
    axes = np.zeros(6)
    for report in reports:
        parse_report(report, axes)
    assert (np.abs(in_base(axes)) <= 1.0).all()


def test_mouse_is_found_by_its_vendor(tmp_path: Path) -> None:
    for name, about in (
        ("hidraw0", "HID_ID=0003:0000046D:0000C31C\nHID_NAME=Logitech USB Keyboard\n"),
        ("hidraw1", "HID_ID=0003:0000256F:0000C635\nHID_NAME=3Dconnexion SpaceMouse Compact\n"),
    ):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "device" / "uevent").write_text(about)
    assert find_spacemouse(tmp_path) == "/dev/hidraw1"
    (tmp_path / "hidraw1" / "device" / "uevent").unlink()
    with pytest.raises(DriverError, match="No SpaceMouse was found"):
        find_spacemouse(tmp_path)
    with pytest.raises(DriverError, match="add the udev rule"):
        SpaceMouse(str(tmp_path / "hidraw9")).connect()
    with pytest.raises(ConfigError, match="six of 1 and -1"):
        SpaceMouse("x", signs=[2.0])
    with pytest.raises(ConfigError, match="two meanings"):
        SpaceMouse("x", dead_man=1)
