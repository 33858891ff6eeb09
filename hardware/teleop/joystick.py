"""A gamepad by Linux' joystick interface: /dev/input/js*, events of eight bytes.

See the kernel's Documentation/input/joydev/joystick-api.

    struct js_event { __u32 time; __s16 value; __u8 type; __u8 number; };
    type 1 button, 2 axis, | 0x80 at the start
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hardware.description import RobotDescription
from hardware.teleop.device import REQUEST_WORDS, REQUESTS, Feedback, OperatorInput
from robo_rl.core.errors import ConfigError, DriverError

EVENT = struct.Struct("<IhBB")
BUTTON, AXIS, AT_START = 1, 2, 0x80
FULL = 32767.0
DEAD_ZONE = 0.08  # dead zone of a stick: worn ones do not return to the middle
Event = tuple[int, int, float]  # type, number, value: 0 or 1 of a button, -1 ... 1 of an axis


def events(data: bytes) -> Iterator[Event]:
    """Complete events in `data`; the kernel never writes a part of one."""
    for _, value, kind, number in EVENT.iter_unpack(data[: len(data) // EVENT.size * EVENT.size]):
        what = kind & ~AT_START
        if what in (BUTTON, AXIS):
            yield what, number, float(value != 0) if what == BUTTON else max(-1.0, value / FULL)


def without_middle(value: float) -> float:
    """Zero in the dead zone, then linear to 1."""
    beyond = max(0.0, abs(value) - DEAD_ZONE) / (1.0 - DEAD_ZONE)
    return beyond if value >= 0.0 else -beyond


JOINT_AXES = (0, 1, 3, 4, 6, 7)
# Forward, left and up by the sticks; about x, y, z by the pad of four arrows and the right stick.
TOOL_AXES = (-2, -1, -5, 6, 7, -4)
MODES = ("joints", "tool")


class Joystick:
    """A gamepad. axes: axis that turns joint i, or moves the tool along and about x, y, z with mode="tool"; a
    negative number -1 - k is axis k reversed.

    dead_man: button to hold. Only the newest event counts, so rare polling adds no delay. The kernel reports
    changes alone: a wireless pad that falls silent while its receiver stays plugged in keeps its last values.
    recorder_buttons: button for each of `REQUESTS`; a negative number is none. gripper_button: opens or
    closes the gripper. gripper_axis: trigger that closes it as far as it is pulled; negative: none.
    """

    def __init__(
        self,
        path: str,
        axes: Sequence[int],
        dead_man: int = 4,
        recorder_buttons: Sequence[int] = (),
        mode: str = "joints",
        gripper_button: int = 5,
        gripper_axis: int = -1,
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"mode={mode} of a gamepad: expected {' or '.join(MODES)}.")
        if dead_man in recorder_buttons or dead_man == gripper_button:
            raise ConfigError(
                f"Button {dead_man} is the dead-man switch and one of recorder_buttons or gripper_button. "
                "Choose other recorder_buttons=."
            )
        if not axes:
            raise ConfigError(
                "A gamepad needs an axis for each joint that it shall turn, such as axes=[0,1,3,4,6,7]."
            )
        if mode == "tool" and len(axes) != 6:
            raise ConfigError(f"mode=tool needs 6 axes, of x, y, z and about them, found {list(axes)}.")
        self._path, self._axes, self._dead_man, self._mode = path, tuple(axes), dead_man, mode
        self._gripper_button, self._gripper_axis = gripper_button, gripper_axis
        pairs = zip(recorder_buttons, REQUESTS, strict=False)
        self._recorder_buttons = {button: request for button, request in pairs if button >= 0}
        self._request, self._toggles, self._file = "", 0, -1
        self._values: dict[tuple[int, int], float] = {}

    def connect(self) -> None:
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            there = ", ".join(sorted(map(str, Path("/dev/input").glob("js*")))) or "none"
            raise DriverError(
                f"The gamepad {self._path} cannot be opened ({error.strerror}). Found: {there}. Plug it in; "
                "to be allowed to read it, join the group 'input'."
            ) from error

    def get_action(self, now_s: float) -> OperatorInput:
        self._request, self._toggles = "", 0
        self._read()
        turned = np.array([without_middle(self._axis(axis)) for axis in self._axes])
        held = self._values.get((BUTTON, self._dead_man), 0.0) > 0.0
        trigger = self._values.get((AXIS, self._gripper_axis))
        return OperatorInput(
            held,
            rates=turned if self._mode == "joints" else None,
            twist=turned if self._mode == "tool" else None,
            gripper=None if trigger is None else 0.5 - 0.5 * trigger,
            gripper_toggle=self._toggles % 2 == 1,
            recorder_request=self._request,
        )

    def send_feedback(self, feedback: Feedback) -> None:
        """Do nothing: this interface cannot make a pad rumble."""

    def help(self, moves: str = "") -> str:
        """Text on the buttons; moves: what moves while the switch is held."""
        moves = moves or f"its axes move the {'arm' if self._mode == 'joints' else 'tool'}"
        words = dict(zip(REQUESTS, REQUEST_WORDS, strict=True))
        items = self._recorder_buttons.items()
        requests = "".join(f", {button} {words[request]}" for button, request in items)
        return (
            f"gamepad: button {self._dead_man} held, {moves}, {self._gripper_button} opens or closes the "
            f"gripper{requests}."
        )

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _axis(self, axis: int) -> float:
        return self._values.get((AXIS, axis), 0.0) if axis >= 0 else -self._values.get((AXIS, -1 - axis), 0.0)

    def _read(self) -> None:
        while True:
            try:  # a closed file cannot be read, either
                data = os.read(self._file, 64 * EVENT.size)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                self._values = {}  # a pad that is gone holds no button
                raise DriverError(
                    f"The gamepad {self._path} is gone. Plug it in and start teleoperation again."
                )
            for kind, number, value in events(data):
                if (
                    kind == BUTTON and value and self._values.get((kind, number)) == 0.0
                ):  # not held since the start
                    self._request = self._recorder_buttons.get(number, self._request)
                    self._toggles += number == self._gripper_button
                self._values[kind, number] = value


def make_gamepad(
    robot: RobotDescription,
    path: str = "/dev/input/js0",
    axes: Sequence[int] = (),
    dead_man: int = 4,
    recorder_buttons: Sequence[int] = (0, 1, 2, 3),
    mode: str = "joints",
    gripper_button: int = 5,
    gripper_axis: int = -1,
) -> Joystick:
    """A gamepad with the axes of its mode where none are given."""
    axes = axes or (TOOL_AXES if mode == "tool" else JOINT_AXES)
    return Joystick(path, axes, dead_man, recorder_buttons, mode, gripper_button, gripper_axis)
