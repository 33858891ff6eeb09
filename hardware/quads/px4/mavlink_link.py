"""MAVLink connection to a PX4: the newest message of each kind with its time of receipt, and commands."""

from __future__ import annotations

import math
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from hardware.driver import import_vendor
from hardware.quads.px4.offboard import ARM, CUSTOM_MODE, IN_FLIGHT, LAND, OFFBOARD, SET_MODE, Mode
from robo_rl.core.errors import DriverError

PX4, QUADROTOR = 12, 2  # MAV_AUTOPILOT, MAV_TYPE
ONBOARD_CONTROLLER = 18  # our MAV_TYPE
COMPANION, AUTOPILOT = 191, 1  # our component, and that of the autopilot
ARMED = 128  # bit of base_mode
CRITICAL, EMERGENCY, TERMINATED = 5, 6, 8  # MAV_STATE
MESSAGE_INTERVAL = 511  # MAV_CMD_SET_MESSAGE_INTERVAL
INT32 = 6  # MAV_PARAM_TYPE
ACCEPTED, IN_PROGRESS, TEMPORARILY_REJECTED = 0, 5, 1
ANSWERS = {1: "not now", 2: "denied", 3: "not supported", 4: "failed", 6: "cancelled"}  # MAV_RESULT
WHAT = {SET_MODE: "offboard mode", ARM: "to arm", MESSAGE_INTERVAL: "to send its state at our rate"}
ANSWER_S = 0.2
HEARTBEAT_S = 0.5
WAIT_S = 3.0  # for the first messages
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
    """Name of a PX4 mode, or its numbers if it is unknown."""
    return MODES.get(mode, f"mode {mode[0]}.{mode[1]}")


class Px4Link:
    """One connection to a PX4.

    A thread takes messages as they arrive, so that their times of receipt are right. address, baud: see
    `Px4Driver`. robot: the device in words, for error messages. heard_s: time of the last message from the
    autopilot. Raises DriverError when the link cannot be opened, MissingDependencyError without pymavlink.
    """

    def __init__(self, address: str, baud: int, robot: str) -> None:
        os.environ.setdefault("MAVLINK20", "1")  # pymavlink reads it when it is imported
        mavutil = import_vendor("pymavlink.mavutil", "a PX4", "px4")
        self._robot = robot
        try:
            self._link: Any = mavutil.mavlink_connection(
                address, baud=baud, source_system=AUTOPILOT, source_component=COMPANION
            )
        except Exception as error:  # a wrong address, a used port and a missing device raise various classes
            raise DriverError(
                f"The link {address} cannot be opened ({error}). Expected an address such as "
                "udpin:0.0.0.0:14540 or /dev/ttyACM0 that no other program uses."
            ) from error
        self._start_s = self._beat_s = time.monotonic()
        self.heard_s = -math.inf
        self._newest: dict[str, tuple[Any, float]] = {}
        self._answers: dict[int, int] = {}
        self._warning, self._system, self._requested_offboard = "", 0, False
        self.mode: Mode = (0, 0)
        self.armed = False
        self._closing = threading.Event()
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()

    def send_heartbeat(self) -> None:
        """Send a heartbeat if the last one is more than HEARTBEAT_S ago."""
        now_s = time.monotonic()
        if now_s - self._beat_s > HEARTBEAT_S and self._system:
            self._link.mav.heartbeat_send(ONBOARD_CONTROLLER, 8, 0, 0, 4)
            self._beat_s = now_s

    def wait_for_autopilot(self) -> None:
        """Wait for a heartbeat. Raises DriverError unless it comes in time, from a PX4 quadcopter."""
        self._until(lambda: "HEARTBEAT" in self._newest, WAIT_S, "a heartbeat")
        beat = self._newest["HEARTBEAT"][0]
        if beat.autopilot != PX4:
            raise DriverError(
                f"{self._robot} is no PX4 (its MAV_AUTOPILOT is {beat.autopilot}, expected {PX4})."
            )
        if beat.type != QUADROTOR:
            raise DriverError(
                f"{self._robot} is no quadcopter (its MAV_TYPE is {beat.type}, expected {QUADROTOR})."
            )

    def wait_for(self, kinds: Sequence[str], what: str) -> None:
        """Wait for messages of these kinds. what: their content in words. Raises DriverError after WAIT_S."""
        self._until(lambda: all(kind in self._newest for kind in kinds), WAIT_S, what)

    def newest(self, kind: str) -> Any:
        """The newest message of a kind; None without one."""
        return self._newest[kind][0] if kind in self._newest else None

    def received_s(self, kind: str) -> float:
        """Local monotonic time of receipt of the newest message of a kind."""
        return self._newest[kind][1]

    def request_rate(self, kind: str, rate_hz: float) -> None:
        """Request the rate of a message. A PX4 that cannot send at this rate keeps its own."""
        number = getattr(import_vendor("pymavlink.mavutil", "a PX4", "px4").mavlink, f"MAVLINK_MSG_ID_{kind}")
        self._command(MESSAGE_INTERVAL, number, 1e6 / rate_hz)

    def parameter(self, name: str, timeout_s: float = 2.0) -> float:
        """Value of a parameter. Raises DriverError when PX4 does not send it within `timeout_s`.

        PX4 sends an integer as a float with the same bytes.
        """
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
        raise DriverError(
            f"{self._robot} did not send its parameter {name}. Update its firmware, or check the link."
        )

    def set_mode(self, mode: Mode, tries: int) -> None:
        """Request a mode, `tries` times until it is accepted; tries=0 sends one request and does not wait."""
        for _ in range(max(1, tries)):
            self._answers.pop(SET_MODE, None)
            self._requested_offboard = mode == OFFBOARD
            self._command(SET_MODE, CUSTOM_MODE, *mode)
            if tries and self._answered(SET_MODE):
                return

    def may_be_offboard(self) -> bool:
        """True if offboard was the last requested mode, and was not refused."""
        return self._requested_offboard and self._answers.get(SET_MODE, ACCEPTED) in (ACCEPTED, IN_PROGRESS)

    def request_arming(self) -> None:
        """Request armed motors, without waiting for the answer."""
        self._command(ARM, 1)

    def disarm_in_flight(self, tries: int) -> None:
        """Stop the motors wherever the craft is, `tries` times until it is accepted."""
        for _ in range(tries):
            self._answers.pop(ARM, None)
            self._command(ARM, 0, IN_FLIGHT)
            if self._answered(ARM):
                return

    def send_text(self, text: str) -> None:
        """Write a line to the log of the flight; it is cut to 50 bytes."""
        self._link.mav.statustext_send(4, text.encode()[:50])

    def pop_refusal(self) -> str:
        """A refused request and its reason, once; empty without one.

        Temporary refusals are ignored, because the request is repeated.
        """
        for command, answer in list(self._answers.items()):
            if answer not in (ACCEPTED, IN_PROGRESS, TEMPORARILY_REJECTED) and command in (SET_MODE, ARM):
                del self._answers[command]
                return f"{WHAT[command]} ({ANSWERS.get(answer, f'answer {answer}')})"
        return ""

    def last_warning(self) -> str:
        """The newest warning of the autopilot, in brackets; empty without one."""
        return f" (it reports: {self._warning})" if self._warning else ""

    def fault(self) -> str:
        """The fault of the autopilot as a sentence; empty without one."""
        beat = self.newest("HEARTBEAT")
        if beat is not None and beat.system_status in (CRITICAL, EMERGENCY, TERMINATED):
            names = {CRITICAL: "in a failsafe", EMERGENCY: "in an emergency", TERMINATED: "terminated"}
            return f"{self._robot} is {names[beat.system_status]}{self.last_warning()}"
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
        """Send SET_ATTITUDE_TARGET. mask: bits of type_mask. quat: [w, x, y, z], FRD to NED. Rates in FRD."""
        self._link.mav.set_attitude_target_send(
            self._ms(), self._system, AUTOPILOT, mask, list(quat), roll_rate, pitch_rate, yaw_rate, thrust
        )

    def send_position(
        self, frame: int, mask: int, position: Any, velocity: Any, acceleration: Any, yaw: float
    ) -> None:
        """Send SET_POSITION_TARGET_LOCAL_NED. frame: MAV_FRAME. mask: bits of type_mask. Vectors in NED."""
        vectors = [float(value) for vector in (position, velocity, acceleration) for value in vector]
        self._link.mav.set_position_target_local_ned_send(
            self._ms(), self._system, AUTOPILOT, frame, mask, *vectors, yaw, 0.0
        )

    def close(self) -> None:
        """Stop the thread and close the connection."""
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
                    f"{self._robot} did not send {what} within {timeout_s:g} s{self.last_warning()}. Check "
                    "that the autopilot is on, and the address of the link."
                )
            time.sleep(0.005)
            self.send_heartbeat()

    def _receive(self) -> None:
        while not self._closing.is_set():
            try:
                message = self._link.recv_match(blocking=True, timeout=0.05)
            except Exception:  # for example an unplugged serial port; `read` reports the silence
                self._closing.wait(0.05)
                continue
            if message is not None:
                self._take(message, time.monotonic())

    def _take(self, message: Any, now_s: float) -> None:
        kind = message.get_type()
        if message.get_srcComponent() != AUTOPILOT or (
            self._system and message.get_srcSystem() != self._system
        ):
            return  # from a camera, a ground station or another vehicle on the same link
        self.heard_s = now_s
        self._newest[kind] = message, now_s
        if kind == "HEARTBEAT":
            self._system = message.get_srcSystem()
            self.mode = (message.custom_mode >> 16 & 0xFF, message.custom_mode >> 24 & 0xFF)
            self.armed = bool(message.base_mode & ARMED)
        elif kind == "COMMAND_ACK":
            self._answers[message.command] = message.result
        elif kind == "STATUSTEXT" and message.severity <= 4:
            self._warning = message.text
