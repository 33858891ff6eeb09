"""A SpaceMouse by Linux' hidraw: a cap that is pushed and turned, and buttons.

Reports of 3Dconnexion: byte 0 is the kind, then little-endian int16 of -350 ... 350, or bits of buttons.

    kind 1: x, y, z; newer devices add the three rotations     kind 2: rotations     kind 3: buttons

The device's axes are x right, y towards the user, z down.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.teleop.device import REQUEST_WORDS, REQUESTS, Feedback, OperatorInput
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.shapes import Float

FULL = 350.0
DEAD_ZONE = 0.05
TURNED, BUTTONS, MOVED = 2, 3, 1
STILL_S = (
    0.2  # a cap that is deflected reports every 16 ms; without a report for this long it counts as still
)
VENDORS = ("0000256F", "0000046D")  # 3Dconnexion; Logitech, with "Space" in the device's name
CLASS = Path("/sys/class/hidraw")


def parse_report(data: bytes, axes: Float[ndarray, " 6"]) -> int | None:
    """Bits of the buttons in a report, if it has them; its axes, -1 ... 1, are written into `axes`."""
    kind, body = (data[0] if data else 0), data[1:]
    if kind == BUTTONS:
        return int.from_bytes(body[:4], "little")
    if kind in (MOVED, TURNED) and len(body) >= 6:
        count = 6 if kind == MOVED and len(body) >= 12 else 3
        values = np.array(struct.unpack(f"<{count}h", body[: 2 * count]), float) / FULL
        start = 0 if kind == MOVED else 3
        axes[start : start + count] = np.clip(values, -1.0, 1.0)
    return None


def in_base(axes: Float[ndarray, " 6"]) -> Float[ndarray, " 6"]:
    """Axes in a frame with x forward, y left, z up, without a dead zone around the middle."""
    beyond = np.sign(axes) * np.maximum(np.abs(axes) - DEAD_ZONE, 0.0) / (1.0 - DEAD_ZONE)
    turned: ndarray = -beyond[[1, 0, 2, 4, 3, 5]]
    return turned


def find_spacemouse(folder: Path = CLASS) -> str:
    """Device file of the first SpaceMouse. Raises DriverError where there is none."""
    for device in sorted(folder.glob("hidraw*")):
        try:
            about = (device / "device" / "uevent").read_text()
        except OSError:
            continue
        fields = dict(line.split("=", 1) for line in about.splitlines() if "=" in line)
        vendor = fields.get("HID_ID", "::").split(":")[1].upper()
        if vendor == VENDORS[0] or (vendor == VENDORS[1] and "Space" in fields.get("HID_NAME", "")):
            return f"/dev/{device.name}"
    raise DriverError(
        "No SpaceMouse was found among the devices of hidraw. Plug it in, or give path: /dev/hidraw... in "
        "the file settings=."
    )


def open_hidraw(path: str) -> int:
    """Descriptor of the device, which gives one report per read."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


class SpaceMouse:
    """Moves the tool while a button is held. path: device file; empty: the first that is found.

    dead_man: button to hold. gripper_button: opens or closes the gripper; negative: none. signs: 1 or -1 for
    x, y, z and the rotations about them, of the tool. recorder_buttons: button for each of `REQUESTS`;
    negative: none.
    """

    def __init__(
        self,
        path: str = "",
        dead_man: int = 0,
        gripper_button: int = 1,
        signs: Sequence[float] = (1, 1, 1, 1, 1, 1),
        recorder_buttons: Sequence[int] = (),
        opened: Callable[[str], int] = open_hidraw,
    ) -> None:
        if len(signs) != 6 or any(abs(sign) != 1 for sign in signs):
            raise ConfigError(f"signs of a SpaceMouse are six of 1 and -1, found {list(signs)}.")
        if dead_man == gripper_button or dead_man in recorder_buttons:
            raise ConfigError(
                f"Button {dead_man} of the SpaceMouse has two meanings: choose another dead_man."
            )
        self._path, self._dead_man, self._gripper_button = path, dead_man, gripper_button
        self._signs, self._opened, self._file = np.array(signs, float), opened, -1
        pairs = zip(recorder_buttons, REQUESTS, strict=False)
        self._requests = {button: request for button, request in pairs if button >= 0}
        self._axes, self._buttons, self._moved_s = np.zeros(6), 0, -np.inf

    def connect(self) -> None:
        path = self._path = self._path or find_spacemouse()
        try:
            self._file = self._opened(path)
        except OSError as error:
            raise DriverError(
                f"The SpaceMouse {path} cannot be opened ({error.strerror}). To be allowed to read it, add "
                'the udev rule KERNEL=="hidraw*", ATTRS{idVendor}=="256f", MODE="0660", TAG+="uaccess" and '
                "plug it in again."
            ) from error

    def get_action(self, now_s: float) -> OperatorInput:
        pressed = self._read(now_s)
        if now_s - self._moved_s > STILL_S:
            self._axes[:] = 0.0
        held = bool(self._buttons >> self._dead_man & 1)
        requests = [request for button, request in self._requests.items() if pressed >> button & 1]
        return OperatorInput(
            held,
            twist=self._signs * in_base(self._axes),
            gripper_toggle=self._gripper_button >= 0 and bool(pressed >> self._gripper_button & 1),
            recorder_request=requests[-1] if requests else "",
        )

    def send_feedback(self, feedback: Feedback) -> None:
        """Do nothing."""

    def help(self) -> str:
        words = dict(zip(REQUESTS, REQUEST_WORDS, strict=True))
        requests = "".join(f", {button} {words[request]}" for button, request in self._requests.items())
        button = self._gripper_button
        gripper = f", {button} opens or closes the gripper" if button >= 0 else ""
        return (
            f"SpaceMouse: button {self._dead_man} held, the cap moves and turns the tool{gripper}{requests}."
        )

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _read(self, now_s: float) -> int:
        """Take all reports that came; returns the bits of buttons that were pressed meanwhile."""
        pressed = 0
        while True:
            try:
                data = os.read(self._file, 64)
            except BlockingIOError:
                return pressed
            except OSError:
                data = b""
            if not data:
                self.close()
                self._axes, self._buttons = np.zeros(6), 0  # a mouse that is gone holds no button
                raise DriverError(
                    f"The SpaceMouse {self._path} is gone. Plug it in and start teleoperation again."
                )
            buttons = parse_report(data, self._axes)
            if buttons is None:
                self._moved_s = now_s
            else:
                pressed |= buttons & ~self._buttons
                self._buttons = buttons


def make_spacemouse(
    robot: RobotDescription,
    path: str = "",
    dead_man: int = 0,
    gripper_button: int = 1,
    signs: Sequence[float] = (1, 1, 1, 1, 1, 1),
    recorder_buttons: Sequence[int] = (),
) -> SpaceMouse:
    """A SpaceMouse with the settings of a file."""
    return SpaceMouse(path, dead_man, gripper_button, signs, recorder_buttons)
