"""One MAVLink connection to a PX4: the newest message of each kind and when it came, commands and their
answers.
"""

from __future__ import annotations

import math
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from hardware.driver import import_vendor
from robo_rl.core.errors import DriverError

PX4, QUADROTOR = 12, 2  # MAV_AUTOPILOT, MAV_TYPE
ONBOARD_CONTROLLER, COMPANION, AUTOPILOT = (
    18,
    191,
    1,
)  # our MAV_TYPE and component, and the one that we talk to
ARMED, CUSTOM_MODE = 128, 1  # bits of base_mode
CRITICAL, EMERGENCY, TERMINATED = 5, 6, 8  # MAV_STATE
SET_MODE, ARM, MESSAGE_INTERVAL = 176, 400, 511  # MAV_CMD
INT32 = 6  # MAV_PARAM_TYPE
ACCEPTED, IN_PROGRESS, TEMPORARILY_REJECTED = 0, 5, 1
ANSWERS = {1: "not now", 2: "denied", 3: "not supported", 4: "failed", 6: "cancelled"}  # MAV_RESULT
WHAT = {SET_MODE: "offboard mode", ARM: "to arm", MESSAGE_INTERVAL: "to send its state at our rate"}
ANSWER_S = 0.2
HEARTBEAT_S = 0.5
WAIT_S = 3.0  # for the first messages
Mode = tuple[int, int]  # PX4's main and sub mode
OFFBOARD: Mode = (6, 0)
LAND: Mode = (4, 6)
MODES = {
    (1, 0): "manual",
    (2, 0): "altitude",
    (3, 0): "position",
    (4, 2): "take-off",
    (4, 3): "hold",
    (4, 4): "mission",
    (4, 5): "return",
    LAND: "land",
    (5, 0): "acro",
    OFFBOARD: "offboard",
    (7, 0): "stabilized",
}


def mode_name(mode: Mode) -> str:
    return MODES.get(mode, f"mode {mode[0]}.{mode[1]}")


class Px4Link:
    """A thread takes messages as they arrive: one that waited for us in a buffer would look as if it were
    new.
    """

    def __init__(self, address: str, baud: int, robot: str) -> None:
        os.environ.setdefault("MAVLINK20", "1")  # read when the package is imported
        mavutil = import_vendor("pymavlink.mavutil", "a PX4", "px4")
        self._robot = robot
        try:
            self._link: Any = mavutil.mavlink_connection(
                address, baud=baud, source_system=AUTOPILOT, source_component=COMPANION
            )
        except Exception as error:  # bad text, a port in use, no such device: each raises a kind of its own
            raise DriverError(
                f"The link {address} cannot be opened ({error}). Expected such as udpin:0.0.0.0:14540 or "
                "/dev/ttyACM0, which no other program uses."
            ) from error
        self._start_s = self._beat_s = time.monotonic()
        self.heard_s = -math.inf
        self._newest: dict[str, tuple[Any, float]] = {}
        self._answers: dict[int, int] = {}
        self._words, self._system, self._asked_offboard = "", 0, False
        self.mode: Mode = (0, 0)
        self.armed = False
        self._closing = threading.Event()
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()

    def beat(self) -> None:
        """Say that we are here, when it is time to."""
        now_s = time.monotonic()
        if now_s - self._beat_s > HEARTBEAT_S and self._system:
            self._link.mav.heartbeat_send(ONBOARD_CONTROLLER, 8, 0, 0, 4)
            self._beat_s = now_s

    def wait_for_autopilot(self) -> None:
        self._until(
            lambda: "HEARTBEAT" in self._newest, WAIT_S, "a heartbeat: is the autopilot on, the link right"
        )
        beat = self._newest["HEARTBEAT"][0]
        if beat.autopilot != PX4:
            raise DriverError(
                f"{self._robot} is no PX4 (its autopilot is number {beat.autopilot}, expected {PX4})."
            )
        if beat.type != QUADROTOR:
            raise DriverError(
                f"{self._robot} is no quadcopter (its type is number {beat.type}, expected {QUADROTOR})."
            )

    def wait_for(self, kinds: Sequence[str], what: str) -> None:
        self._until(lambda: all(kind in self._newest for kind in kinds), WAIT_S, what)

    def newest(self, kind: str) -> Any:
        return self._newest[kind][0] if kind in self._newest else None

    def received_s(self, kind: str) -> float:
        return self._newest[kind][1]

    def request_rate(self, kind: str, rate_hz: float) -> None:
        """Ask for a message; a PX4 that cannot send it at this rate sends it at its own."""
        number = getattr(import_vendor("pymavlink.mavutil", "a PX4", "px4").mavlink, f"MAVLINK_MSG_ID_{kind}")
        self._command(MESSAGE_INTERVAL, number, 1e6 / rate_hz)

    def parameter(self, name: str, timeout_s: float = 2.0) -> float:
        """A parameter's value. PX4 sends integers as the bytes of a float."""
        self._newest.pop("PARAM_VALUE", None)
        for _ in range(4):
            self._link.mav.param_request_read_send(self._system, AUTOPILOT, name.encode(), -1)
            try:
                self._until(lambda: self._parameter_is(name), timeout_s / 4.0, name)
            except DriverError:
                continue
            value = self._newest["PARAM_VALUE"][0]
            if value.param_type == INT32:
                return float(struct.unpack("<i", struct.pack("<f", value.param_value))[0])
            return float(value.param_value)
        raise DriverError(f"{self._robot} does not tell its parameter {name}. Update it, or check the link.")

    def set_mode(self, mode: Mode, tries: int) -> None:
        """Ask for a mode; tries=0 does not wait for the answer, else it asks so often until it is
        accepted.
        """
        for _ in range(max(1, tries)):
            self._answers.pop(SET_MODE, None)
            self._asked_offboard = mode == OFFBOARD
            self._command(SET_MODE, CUSTOM_MODE, *mode)
            if tries and self._answered(SET_MODE):
                return

    def may_be_offboard(self) -> bool:
        """Was offboard asked for, and not refused?"""
        return self._asked_offboard and self._answers.get(SET_MODE, ACCEPTED) in (ACCEPTED, IN_PROGRESS)

    def ask_to_arm(self) -> None:
        self._command(ARM, 1)

    def tell(self, text: str) -> None:
        """A line in the log of the flight."""
        self._link.mav.statustext_send(4, text.encode()[:50])

    def take_refusal(self) -> str:
        """What was asked and refused, once; empty when nothing was. "Not now" is asked again, so it is not
        told.
        """
        for command, answer in list(self._answers.items()):
            if answer not in (ACCEPTED, IN_PROGRESS, TEMPORARILY_REJECTED) and command in (SET_MODE, ARM):
                del self._answers[command]
                return f"{WHAT[command]} ({ANSWERS.get(answer, f'answer {answer}')})"
        return ""

    def last_words(self) -> str:
        """The newest warning that it sent, in brackets."""
        return f" (it says: {self._words})" if self._words else ""

    def fault(self) -> str:
        beat = self.newest("HEARTBEAT")
        if beat is not None and beat.system_status in (CRITICAL, EMERGENCY, TERMINATED):
            names = {CRITICAL: "in a failsafe", EMERGENCY: "in an emergency", TERMINATED: "terminated"}
            return f"{self._robot} is {names[beat.system_status]}{self.last_words()}"
        return ""

    def send_attitude(
        self,
        mask: int,
        quat: Sequence[float],
        roll_rate: float,
        pitch_rate: float,
        yaw_rate: float,
        thrust: float,
    ) -> None:
        self._link.mav.set_attitude_target_send(
            self._ms(), self._system, AUTOPILOT, mask, list(quat), roll_rate, pitch_rate, yaw_rate, thrust
        )

    def send_position(
        self, frame: int, mask: int, position: Any, velocity: Any, acceleration: Any, yaw: float
    ) -> None:
        vectors = [float(value) for vector in (position, velocity, acceleration) for value in vector]
        self._link.mav.set_position_target_local_ned_send(
            self._ms(), self._system, AUTOPILOT, frame, mask, *vectors, yaw, 0.0
        )

    def close(self) -> None:
        self._closing.set()
        self._receiver.join()
        self._link.close()

    def _ms(self) -> int:
        return int(1e3 * (time.monotonic() - self._start_s))

    def _command(self, command: int, *values: float) -> None:
        filled = [*map(float, values), *[0.0] * (7 - len(values))]
        self._link.mav.command_long_send(self._system, AUTOPILOT, command, 0, *filled)

    def _answered(self, command: int) -> bool:
        end_s = time.monotonic() + ANSWER_S
        while time.monotonic() < end_s:
            if command in self._answers:
                return self._answers[command] in (ACCEPTED, IN_PROGRESS)
            time.sleep(0.002)
        return False

    def _parameter_is(self, name: str) -> bool:
        return "PARAM_VALUE" in self._newest and str(self._newest["PARAM_VALUE"][0].param_id) == name

    def _until(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        end_s = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > end_s:
                raise DriverError(
                    f"{self._robot} did not send {what}? Waited {timeout_s:g} s{self.last_words()}."
                )
            time.sleep(0.005)
            self.beat()

    def _receive(self) -> None:
        while not self._closing.is_set():
            try:
                message = self._link.recv_match(blocking=True, timeout=0.05)
            except Exception:  # a serial port that was pulled out: silence, which `read` tells
                self._closing.wait(0.05)
                continue
            if message is not None:
                self._take(message, time.monotonic())

    def _take(self, message: Any, now_s: float) -> None:
        kind = message.get_type()
        if message.get_srcComponent() != AUTOPILOT or (
            self._system and message.get_srcSystem() != self._system
        ):
            return  # a camera, a ground station, another vehicle on the same link
        self.heard_s = now_s
        self._newest[kind] = message, now_s
        if kind == "HEARTBEAT":
            self._system = message.get_srcSystem()
            self.mode = (message.custom_mode >> 16 & 0xFF, message.custom_mode >> 24 & 0xFF)
            self.armed = bool(message.base_mode & ARMED)
        elif kind == "COMMAND_ACK":
            self._answers[message.command] = message.result
        elif kind == "STATUSTEXT" and message.severity <= 4:
            self._words = message.text
