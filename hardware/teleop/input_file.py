"""Recorded input of a device, as JSON lines: written beside a session, and replayed as a device.

    {"robo_rl_teleop_input": 1, "device": "spacemouse"}
    {"t_s": 0.0, "held": false}
    {"t_s": 0.02, "held": true, "twist": [0.1, 0, 0, 0, 0, 0], "gripper": 1.0}

The keys are the fields of `OperatorInput`; a pose is {"position_m": [...], "quat_wxyz": [...]}. Keys that are
left out have their default. A file that was cut off is replayed up to its last complete line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from hardware.teleop.device import NOTHING, Feedback, HandPose, OperatorInput, Teleoperator
from robo_rl.core.errors import ConfigError, DataError

VERSION = 1
HEADER = "robo_rl_teleop_input"
_KEYS = {"t_s", *(field.name for field in fields(OperatorInput))}
_ARRAYS = ("rates", "position_rad", "twist")


def input_line(t_s: float, operator: OperatorInput) -> str:
    """One line of the file, without its end; only what differs from the default."""
    item: dict[str, Any] = {"t_s": round(t_s, 6), "held": bool(operator.held)}
    for key in _ARRAYS:
        if (values := getattr(operator, key)) is not None:
            item[key] = np.asarray(values, dtype=np.float64).tolist()
    if (pose := operator.pose) is not None:
        place, quat = (np.asarray(v, dtype=np.float64).tolist() for v in (pose.position_m, pose.quat_wxyz))
        item["pose"] = {"position_m": place, "quat_wxyz": quat}
    if operator.gripper is not None:
        item["gripper"] = float(operator.gripper)
    if operator.gripper_toggle:
        item["gripper_toggle"] = True
    if operator.recorder_request:
        item["recorder_request"] = operator.recorder_request
    return json.dumps(item)


def parse_line(text: str, where: str) -> tuple[float, OperatorInput]:
    """(time since the begin [s], input) of one line. Raises DataError that names `where`."""
    try:
        item = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not JSON: {error}.") from error
    if not isinstance(item, Mapping) or not isinstance(item.get("held"), bool):
        raise DataError(f'{where} needs "held": true or false, found {text[:60]}.')
    if unknown := sorted(item.keys() - _KEYS):
        raise DataError(f"{where} has unknown keys {', '.join(unknown)}. Known: {', '.join(sorted(_KEYS))}.")
    t_s = item.get("t_s")
    if isinstance(t_s, bool) or not isinstance(t_s, int | float) or not 0.0 <= t_s < math.inf:
        raise DataError(f'{where} needs "t_s", seconds since the begin, found {t_s!r}.')
    values: dict[str, Any] = {key: value for key, value in item.items() if key != "t_s"}
    try:
        for key in _ARRAYS:
            if values.get(key) is not None:
                values[key] = np.array(values[key], dtype=np.float64)
        if values.get("pose") is not None:
            pose = values["pose"]
            values["pose"] = HandPose(
                *(np.array(pose[key], dtype=np.float64) for key in ("position_m", "quat_wxyz"))
            )
    except (TypeError, ValueError, KeyError) as error:
        raise DataError(f"{where} holds something other than numbers: {text[:60]}.") from error
    return float(t_s), OperatorInput(**values)


def read_inputs(path: Path) -> list[tuple[float, OperatorInput]]:
    """All inputs of a file. Raises ConfigError for a missing file, DataError for one of another kind."""
    if not path.is_file():
        raise ConfigError(f"The recorded input {path} does not exist. Give recording:<file>.")
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    try:
        header = json.loads(lines[0])
    except json.JSONDecodeError:
        header = None
    if not isinstance(header, Mapping) or header.get(HEADER) != VERSION:
        raise DataError(
            f'{path} is no recorded input: its first line must be {{"{HEADER}": {VERSION}}}, found '
            f"{lines[0][:60]!r}."
        )
    found, before_s = [], 0.0
    for number, text in enumerate(lines[1:-1], start=2):  # the last has no end: it was cut off, or is empty
        if not text.strip():
            continue
        t_s, operator = parse_line(text, f"{path}, line {number},")
        if t_s < before_s:
            raise DataError(f"{path}, line {number}, goes back in time from {before_s:g} to {t_s:g} s.")
        found.append((t_s, operator))
        before_s = t_s
    if not found:
        raise DataError(f"{path} holds no input.")
    return found


class RecordedInput:
    """Replay of a recorded input from the first call on. After its end the switch is released.

    Each press of a button is given once, however often the device is asked.
    """

    def __init__(self, path: str) -> None:
        self._path, self._next = path, 0
        self._inputs: list[tuple[float, OperatorInput]] = []
        self._begun_s: float | None = None

    def connect(self) -> None:
        self._inputs, self._next, self._begun_s = read_inputs(Path(self._path)), 0, None

    def get_action(self, now_s: float) -> OperatorInput:
        self._begun_s = now_s if self._begun_s is None else self._begun_s
        t_s, request, toggles = now_s - self._begun_s + 1e-6, "", 0
        while self._next < len(self._inputs) and self._inputs[self._next][0] <= t_s:
            operator = self._inputs[self._next][1]
            request, toggles = operator.recorder_request or request, toggles + operator.gripper_toggle
            self._next += 1
        ended = self._next == len(self._inputs) and t_s > self._inputs[-1][0] + 0.05
        newest = NOTHING if self._next == 0 or ended else self._inputs[self._next - 1][1]
        values = {field.name: getattr(newest, field.name) for field in fields(OperatorInput)}
        return OperatorInput(**values | {"recorder_request": request, "gripper_toggle": toggles % 2 == 1})

    def send_feedback(self, feedback: Feedback) -> None:
        """Do nothing."""

    def help(self) -> str:
        return f"recording: {self._path} is replayed from now on, its dead-man switch included."

    def close(self) -> None:
        """Do nothing."""


class InputRecorder:
    """A device whose input is also written to a file, which `RecordedInput` replays."""

    def __init__(self, device: Teleoperator, path: str, name: str) -> None:
        self._device, self._path, self._name = device, Path(path), name
        self._file: TextIO | None = None
        self._begun_s: float | None = None

    def connect(self) -> None:
        self._device.connect()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("x", encoding="utf-8")
        except OSError as error:
            self._device.close()
            raise ConfigError(
                f"record_input={self._path} cannot be written ({error.strerror}). Give a new file."
            ) from error
        print(json.dumps({HEADER: VERSION, "device": self._name}), file=self._file)

    def get_action(self, now_s: float) -> OperatorInput:
        operator = self._device.get_action(now_s)
        self._begun_s = now_s if self._begun_s is None else self._begun_s
        if self._file is not None:
            print(input_line(max(0.0, now_s - self._begun_s), operator), file=self._file, flush=True)
        return operator

    def send_feedback(self, feedback: Feedback) -> None:
        self._device.send_feedback(feedback)

    def help(self) -> str:
        return self._device.help()

    def close(self) -> None:
        try:
            self._device.close()
        finally:
            file, self._file = self._file, None
            if file is not None:
                file.close()
