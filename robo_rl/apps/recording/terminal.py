"""Operation from a terminal, also over SSH: keys on stdin, and one status line.

A terminal reports no releases, so a driving key counts as held for HOLD_S after its last character; while it
is pressed the terminal repeats it. The same letters as on the page; a stop is `k`, the emergency stop `!`,
which only presses; `U` releases it.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import termios
import tty
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from robo_rl.apps.recording.requests import (
    DriveRequest,
    EstopRequest,
    MarkRequest,
    PlainRequest,
    Request,
    SaveRequest,
)
from robo_rl.apps.recording.shared_state import SharedState
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.counts import counted

HOLD_S = 0.15
STATUS_S = 0.25  # between two status lines
TOOL_KEYS = {
    "up": (0, 1.0), "down": (0, -1.0), "left": (1, 1.0), "right": (1, -1.0), "w": (2, 1.0), "s": (2, -1.0),
    "z": (3, 1.0), "c": (3, -1.0), "q": (4, 1.0), "e": (4, -1.0), "a": (5, 1.0), "d": (5, -1.0),
    "o": (6, 1.0), "l": (6, -1.0),
}  # fmt: skip
GRIPPER = 6  # axis of the keys that open and close it
ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
KEY = re.compile(r"\x1b[\[O]([A-D])|\x1b[\[O][0-9;]*[~A-Za-z]|(.)", re.DOTALL)
HELP = (
    "keys: arrows, w s move the hand, a d q e z c turn it, o l open and close a gripper; 1-9 turn a joint "
    "up, shift and digit down; space starts and ends, Enter success, f failure, x discard, r re-record, "
    "p pause, n new scene, g or b marks a good or bad moment, t let the policy run or take over, m arm, "
    "k stop, ! EMERGENCY STOP, U releases it; Ctrl-C ends and keeps what is recorded."
)
SHIFTED = "!@#$%^&*("  # of a US keyboard; "!" is the emergency stop, so joint 1 turns down by "~"


class Terminal:
    """Reads the terminal `file`. Raises ConfigError where it is none. gripper: whether the arm has one."""

    def __init__(
        self, shared: SharedState, joints: int, gripper: bool, clock: Callable[[], float], file: int = 0
    ) -> None:
        self._shared, self._joints, self._gripper = shared, joints, gripper
        self._clock, self._file = clock, file
        self._drive: tuple[str, int, float] | None = None  # mode, axis, value of the key that is held
        self._key_s = self._told_s = -1e9
        try:
            self._before = termios.tcgetattr(file)
        except termios.error as error:
            raise ConfigError("ui=terminal reads keys, but stdin is no terminal.") from error
        tty.setcbreak(file)

    def tick(self) -> None:
        """Hand in what was typed, and show the status."""
        now_s = self._clock()
        for key in self._typed():
            self._press(key, now_s)
        if self._drive is not None:
            if now_s - self._key_s > HOLD_S:
                self._drive = None
                self._shared.ask(PlainRequest(kind="release"))
            else:
                self._shared.ask(self._request(*self._drive))
        if now_s - self._told_s > STATUS_S and self._shared.view:
            self._told_s = now_s
            self._write(f"\r\x1b[K{status_line(self._shared.view)[: shutil.get_terminal_size().columns - 1]}")

    def close(self) -> None:
        """Restore the terminal's settings."""
        self._write("\r\x1b[K")
        with suppress(termios.error):
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def _press(self, key: str, now_s: float) -> None:
        if (drive := self._driving(key)) is not None:
            self._drive, self._key_s = drive, now_s
        elif (request := self._action(key)) is not None:
            self._shared.ask(request)
        elif key.isalnum():
            self._write(f"\r\x1b[KThe key '{key}' does nothing here.\r\n")

    def _driving(self, key: str) -> tuple[str, int, float] | None:
        if key in TOOL_KEYS and (self._gripper or TOOL_KEYS[key][0] != GRIPPER):
            return "tool", *TOOL_KEYS[key]
        for digits, value in (("123456789", 1.0), ("~" + SHIFTED[1:], -1.0)):
            if key in digits and digits.index(key) < self._joints:
                return "joints", digits.index(key), value
        return None

    def _action(self, key: str) -> Request | None:
        view = self._shared.view
        state, drive = view.get("episode", {}).get("state"), view.get("drive") or {}
        if key in ("\n", "f"):
            return SaveRequest(kind="save", success=key == "\n")
        if key in ("g", "b"):
            return MarkRequest(kind="mark", reward=1.0 if key == "g" else -1.0)
        if key in ("!", "U"):
            return EstopRequest(kind="estop", on=key == "!")
        names = {
            " ": "start" if state == "idle" else "end",
            "x": "discard",
            "\x7f": "discard",
            "r": "again",
            "p": "resume" if state == "paused" else "pause",
            "n": "reset",
            "t": "take_over" if drive.get("control") == "policy" else "let_run",
            "m": "arm",
            "k": "stop",
        }
        return PlainRequest.model_validate({"kind": names[key]}) if key in names else None

    def _request(self, mode: str, axis: int, value: float) -> DriveRequest:
        values = [0.0] * (1 + GRIPPER if mode == "tool" else self._joints)
        values[axis] = value
        return DriveRequest.model_validate({"kind": "drive", "mode": mode, "values": values})

    def _typed(self) -> list[str]:
        """Keys that were typed; never waits."""
        try:
            waiting, _, _ = select.select([self._file], [], [], 0.0)
            text = os.read(self._file, 256).decode(errors="ignore") if waiting else ""
        except OSError:
            return []
        return [ARROWS.get(arrow, plain) for arrow, plain in KEY.findall(text) if arrow or plain]

    def _write(self, text: str) -> None:
        with suppress(OSError):
            os.write(self._file, text.encode())


def status_line(view: Mapping[str, Any]) -> str:
    """State of filter, episode and cameras in one line."""
    episode, robot = view["episode"], view["robot"]
    ages = " ".join(
        f"{name} {camera['age_ms']:.0f} ms"
        if camera["state"] == "ok"
        else f"{name} {camera['state'].upper()}"
        for name, camera in robot["cameras"].items()
    )
    clock = f" {episode['seconds']:.1f} s" if episode["state"] != "idle" else ""
    drive = view.get("drive") or {}
    free = "dataset UNREACHABLE" if view["disk_gb"] is None else f"{view['disk_gb']:.0f} GB left"
    saved = f"{episode['count']} saved, {counted(episode['successes'], 'success', 'successes')}"
    return (
        f"[{robot['filter']['phase']}] {episode['state']}{clock} | {saved} | "
        f"{drive.get('control', 'other')} | {ages} | {view['loop']['hz']:.0f} Hz | {free}"
    )
