"""A hand that another program tracks: a phone, a headset or a controller of WebXR, as validated messages.

    {"seq": 17, "clutch": true, "position_m": [0.1, 1.2, -0.3], "quat_xyzw": [0, 0, 0, 1], "gripper": 0.4}

A message has these keys, and may have `gripper` (0 closed to 1 open), `gripper_toggle` (true in the one
message of a press) and `request` (of the recorder). Poses of WebXR have x right, y up and z backwards; those
of frame="base" are already in the frame of the arm's base. Whatever carries the messages calls
`PoseStream.put`, from any thread: the socket of `hardware.teleop.pose_link`, or the server of a page.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.teleop.device import REQUESTS, Feedback, HandPose, OperatorInput
from hardware.teleop.input_check import FAR_M, UNIT_SLACK
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.shapes import Float

AGE_S = 0.15  # oldest message with which the tool may be moved
WAITING = 64  # messages that wait for the next tick; older ones are dropped
NEEDED = ("seq", "clutch", "position_m", "quat_xyzw")
KEYS = {*NEEDED, "gripper", "gripper_toggle", "request"}
FRAMES = ("webxr", "base")
# Rotation from WebXR's frame (x right, y up, z backwards) to one with x forward, y left, z up.
WEBXR = np.array([[0.0, 0.0, -1.0], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


@dataclass(frozen=True, slots=True)
class PoseMessage:
    """A valid message, in the frame of its sender."""

    seq: int
    clutch: bool
    position_m: Float[ndarray, " 3"]
    quat_xyzw: Float[ndarray, " 4"]
    gripper: float | None = None
    gripper_toggle: bool = False
    request: str = ""


def parse_pose(item: Any) -> PoseMessage:
    """The message of a JSON object. Raises DataError that names the key."""
    _check_keys(item)
    place_m, quat = _numbers(item, "position_m", 3), _numbers(item, "quat_xyzw", 4)
    if np.abs(place_m).max() > FAR_M:
        raise DataError(f"position_m of a pose is more than {FAR_M:g} m away.")
    if abs(float(np.linalg.norm(quat)) - 1.0) > UNIT_SLACK:
        raise DataError("quat_xyzw of a pose has not the length 1.")
    gripper = item.get("gripper")
    if gripper is not None and (not _is_number(gripper) or not 0.0 <= gripper <= 1.0):
        raise DataError(f"gripper of a pose is a number from 0 to 1, found {str(gripper)[:40]!r}.")
    toggle, request = item.get("gripper_toggle", False), item.get("request", "")
    return PoseMessage(item["seq"], item["clutch"], place_m, quat, gripper, toggle, request)


def _check_keys(item: Any) -> None:
    """Raise DataError for missing and unknown keys, and for values that are no numbers."""
    if not isinstance(item, Mapping):
        raise DataError(f"A pose is a JSON object, found {type(item).__name__}.")
    if missing := [key for key in NEEDED if key not in item]:
        raise DataError(f"A pose needs {', '.join(missing)}.")
    if unknown := [str(key)[:40] for key in item if key not in KEYS]:
        raise DataError(f"A pose has no key {unknown[0]!r}; it has {', '.join(sorted(KEYS))}.")
    seq, request = item["seq"], item.get("request", "")
    if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq < 2**53:
        raise DataError(f"seq of a pose is a whole number that grows, found {str(seq)[:40]!r}.")
    for key in ("clutch", "gripper_toggle"):
        if not isinstance(item.get(key, False), bool):
            raise DataError(f"{key} of a pose is true or false, found {str(item[key])[:40]!r}.")
    if request not in ("", *REQUESTS):
        raise DataError(f"request of a pose is one of {', '.join(REQUESTS)}, found {str(request)[:40]!r}.")


class PoseStream:
    """A device whose hand is where the newest message says; released without one for `AGE_S`.

    frame: of the messages. yaw_rad: direction into which the operator looks, in the frame of the arm's base:
    0 along its x axis, pi facing the arm. clock: as of the bus that reads the device.
    """

    def __init__(
        self, frame: str = "webxr", yaw_rad: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if frame not in FRAMES:
            raise ConfigError(f"frame={frame} of a stream of poses: expected {' or '.join(FRAMES)}.")
        if not math.isfinite(yaw_rad):
            raise ConfigError(f"yaw_rad={yaw_rad} of a stream of poses: expected radians.")
        cos, sin = math.cos(yaw_rad), math.sin(yaw_rad)
        self._turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
        if frame == "webxr":
            self._turn = self._turn @ WEBXR
        self._clock, self._lock = clock, threading.Lock()
        self._waiting: deque[tuple[PoseMessage, float]] = deque(maxlen=WAITING)
        self._newest: tuple[PoseMessage, float] | None = None
        self._seq = -1
        self._toggles, self._request = 0, ""
        self.feedback = Feedback(False)  # newest, for whoever shows it to the operator

    def connect(self) -> None:
        """Do nothing: messages are brought."""

    def put(self, item: Any) -> None:
        """Take one message, from any thread. Raises DataError for one that makes no sense.

        A message that is not newer than one before is dropped. Buttons count even if the queue overflows.
        """
        message, received_s = parse_pose(item), self._clock()
        with self._lock:
            if message.seq <= self._seq:
                return
            self._seq = message.seq
            self._toggles += message.gripper_toggle
            self._request = message.request or self._request
            self._waiting.append((message, received_s))

    def lose(self) -> None:
        """Note that the sender is gone: released at the next tick, and a new one may count from 0."""
        with self._lock:
            self._waiting.clear()
            self._newest, self._seq, self._toggles, self._request = None, -1, 0, ""

    def get_action(self, now_s: float) -> OperatorInput:
        with self._lock:
            if self._waiting:
                self._newest = self._waiting[-1]
                # A clutch that was released in between has to be seen: the next press is a new engagement.
                released = not all(message.clutch for message, _ in self._waiting)
                self._waiting.clear()
            else:
                released = False
            newest, toggle, request = self._newest, self._toggles % 2 == 1, self._request
            self._toggles, self._request = 0, ""
        if newest is None:
            return OperatorInput(False, recorder_request=request)
        message, received_s = newest
        held = message.clutch and not released and now_s - received_s <= AGE_S
        return OperatorInput(
            held,
            pose=self._in_base(message),
            gripper=message.gripper,
            gripper_toggle=toggle,
            recorder_request=request,
        )

    def send_feedback(self, feedback: Feedback) -> None:
        self.feedback = feedback

    def help(self) -> str:
        return "hand: while its clutch is held, its motion moves the tool."

    def close(self) -> None:
        """Forget the sender."""
        self.lose()

    def _in_base(self, message: PoseMessage) -> HandPose:
        """Pose in the base's frame. Only motion counts, so the hand's own axes may stay as they are."""
        turn, (x, y, z, w) = self._turn, message.quat_xyzw
        return HandPose(turn @ message.position_m, np.array([w, *(turn @ np.array([x, y, z]))]))


def _numbers(item: Mapping[str, Any], key: str, size: int) -> Float[ndarray, " n"]:
    values = item[key]
    if not isinstance(values, list | tuple) or len(values) != size or not all(map(_is_number, values)):
        raise DataError(f"{key} of a pose is {size} finite numbers, found {str(values)[:60]}.")
    return np.array(values, dtype=np.float64)


def _is_number(value: Any) -> bool:
    """True for a finite number of a plausible size; integers may be too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9
