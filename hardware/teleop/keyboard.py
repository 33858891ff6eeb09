"""A terminal's keyboard: two keys per joint. Terminals report no releases, so the moving key is the dead-man
switch.

A key counts as held for HOLD_S after its last character; while it is pressed the terminal repeats it, after a
pause. Two keys cannot be held at once: a terminal repeats only the last one.
"""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Sequence

import numpy as np

from hardware.teleop.device import REQUEST_WORDS, OperatorInput
from robo_rl.core.errors import ConfigError, DriverError

UP, DOWN = "qwertyu", "asdfghj"  # joint 1 turns up by q, down by a; joint 2 by w and s; ...
HOLD_S = 0.15
REQUEST_OF_KEY = {" ": "start", "\n": "success", "x": "failure", "\x7f": "discard"}  # the last is Backspace
REQUEST_KEYS = ("space", "Enter", "x", "Backspace")  # names of these keys
REPEAT_S = 1.0  # a key that is held down repeats sooner, and requests once


class Keyboard:
    """joints: number of joints. file: descriptor of the terminal in which the program runs."""

    def __init__(self, joints: int, file: int = 0) -> None:
        if not 1 <= joints <= len(UP):
            raise ConfigError(f"A keyboard turns 1 to {len(UP)} joints, found {joints}.")
        self._joints, self._file = joints, file
        self._key, self._key_s = "", -HOLD_S
        self._requested, self._requested_s = "", -REPEAT_S
        try:
            self._before = termios.tcgetattr(file)
        except termios.error as error:
            raise DriverError(
                "Teleoperation by keyboard needs a terminal; here is none (a pipe, or a launch file). Start "
                "it in a terminal of its own."
            ) from error
        tty.setcbreak(file)

    def poll(self, now_s: float) -> OperatorInput:
        request = ""
        for key in self._typed():
            if key in REQUEST_OF_KEY:
                request = self._once(REQUEST_OF_KEY[key], now_s) or request
            else:
                self._key, self._key_s = key, now_s
        if now_s - self._key_s >= HOLD_S:
            return OperatorInput(False, recorder_request=request)
        rates = np.zeros(self._joints)
        for keys, sign in ((UP, 1.0), (DOWN, -1.0)):
            if self._key and self._key in keys[: self._joints]:
                rates[keys.index(self._key)] = sign
        held = bool(rates.any())
        return OperatorInput(held, rates=rates if held else None, recorder_request=request)

    def help(self, names: Sequence[str]) -> str:
        """Text on the keys; names: of the joints."""
        turns = ", ".join(f"{up} {down} {name}" for up, down, name in zip(UP, DOWN, names, strict=False))
        requests = ", ".join(f"{key} {does}" for key, does in zip(REQUEST_KEYS, REQUEST_WORDS, strict=True))
        return f"keys: {turns}; {requests}."

    def close(self) -> None:
        """Restore the terminal's settings."""
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
