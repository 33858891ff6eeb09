"""A terminal's keyboard: two keys per joint, or per direction of the tool.

Terminals report no releases, so the moving key is the dead-man switch.

A key counts as held for HOLD_S after its last character; while it is pressed the terminal repeats it, after a
pause. Two keys cannot be held at once: a terminal repeats only the last one.
"""

from __future__ import annotations

import math
import os
import select
import termios
import tty
from collections.abc import Sequence
from typing import Any

import numpy as np

from hardware.description import RobotDescription
from hardware.teleop.device import REQUEST_WORDS, Feedback, OperatorInput
from hardware.teleop.joystick import MODES
from robo_rl.core.errors import ConfigError, DriverError

UP, DOWN = "qwertyu", "asdfghj"  # joint 1 turns up by q, down by a; joint 2 by w and s; ...
HOLD_S = 0.15
REQUEST_OF_KEY = {" ": "start", "\n": "success", "x": "failure", "\x7f": "discard"}  # the last is Backspace
REQUEST_KEYS = ("space", "Enter", "x", "Backspace")  # names of these keys
REPEAT_S = 1.0  # a key that is held down repeats sooner, and requests once


GRIPPER_KEY = "o"
GRIPPER_S = 1.0  # time for which the key of the gripper counts as held, so that it opens or closes
TOOL = ("x", "y", "z", "about x", "about y", "about z")


class Keyboard:
    """names: of the joints, or of the directions of the tool with mode="tool". file: descriptor of the
    terminal in which the program runs.
    """

    def __init__(self, names: Sequence[str], file: int = 0, mode: str = "joints") -> None:
        if mode not in MODES:
            raise ConfigError(f"mode={mode} of a keyboard: expected {' or '.join(MODES)}.")
        if not 1 <= len(names) <= len(UP):
            raise ConfigError(f"A keyboard turns 1 to {len(UP)} joints, found {len(names)}.")
        self._names, self._joints, self._file, self._mode = tuple(names), len(names), file, mode
        self._key, self._key_s = "", -HOLD_S
        self._requested, self._requested_s = "", -REPEAT_S
        self._gripped_s = -math.inf
        self._before: list[Any] | None = None

    def connect(self) -> None:
        try:
            self._before = termios.tcgetattr(self._file)
        except termios.error as error:
            raise DriverError(
                "Teleoperation by keyboard needs a terminal; here is none (a pipe, or a launch file). Start "
                "it in a terminal of its own."
            ) from error
        tty.setcbreak(self._file)

    def get_action(self, now_s: float) -> OperatorInput:
        request, toggle = "", False
        for key in self._typed():
            if key in REQUEST_OF_KEY:
                request = self._once(REQUEST_OF_KEY[key], now_s) or request
            elif key == GRIPPER_KEY:
                toggle = toggle or bool(self._once(GRIPPER_KEY, now_s))
                self._gripped_s = now_s
            else:
                self._key, self._key_s = key, now_s
        rates = np.zeros(self._joints)
        if now_s - self._key_s < HOLD_S:
            for keys, sign in ((UP, 1.0), (DOWN, -1.0)):
                if self._key and self._key in keys[: self._joints]:
                    rates[keys.index(self._key)] = sign
        moves = bool(rates.any())
        held = moves or now_s - self._gripped_s < GRIPPER_S
        given = rates if held else None
        return OperatorInput(
            held,
            rates=given if self._mode == "joints" else None,
            twist=given if self._mode == "tool" else None,
            gripper_toggle=toggle,
            recorder_request=request,
        )

    def send_feedback(self, feedback: Feedback) -> None:
        """Do nothing."""

    def help(self) -> str:
        """Text on the keys."""
        turns = ", ".join(
            f"{up} {down} {name}" for up, down, name in zip(UP, DOWN, self._names, strict=False)
        )
        requests = ", ".join(f"{key} {does}" for key, does in zip(REQUEST_KEYS, REQUEST_WORDS, strict=True))
        return f"keys: {turns}; {GRIPPER_KEY} opens or closes the gripper; {requests}."

    def close(self) -> None:
        """Restore the terminal's settings."""
        if self._before is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def _once(self, request: str, now_s: float) -> str:
        """Request of a new key press; empty while the key is only held."""
        held_down = request == self._requested and now_s - self._requested_s < REPEAT_S
        self._requested, self._requested_s = request, now_s
        return "" if held_down else request

    def _typed(self) -> str:
        """Characters typed; never waits, and leaves the terminal blocking, because output shares the open
        file.
        """
        try:
            waiting, _, _ = select.select([self._file], [], [], 0.0)
            return os.read(self._file, 256).decode(errors="ignore") if waiting else ""
        except OSError as error:
            raise DriverError("The terminal of the keyboard is gone.") from error


def make_keyboard(robot: RobotDescription, mode: str = "joints") -> Keyboard:
    """The keyboard of this program's terminal."""
    joints = [name for name, grips in zip(robot.names, robot.is_gripper, strict=True) if not grips]
    return Keyboard(TOOL if mode == "tool" else joints, mode=mode)
