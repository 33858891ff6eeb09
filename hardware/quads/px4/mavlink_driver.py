"""Driver of PX4 over MAVLink (pymavlink): an offboard stream of body rates, attitudes or positions.

Each `write` sends one message of the stream; when writes end, the stream ends. Offboard mode is requested
after one second of stream, without waiting for the answer.

Watchdogs: the guard process (`hardware/guard/guard.py`) requests a landing. Should it fail, PX4's own loss of
offboard acts (COM_OF_LOSS_T and COM_OBL_RC_ACT), which `connect` checks. When a pilot leaves offboard mode,
the pilot keeps control: the driver does not request offboard mode again. Motors that somebody else disarmed
stay disarmed.
"""

from __future__ import annotations

import math
import time

import numpy as np

from hardware.driver import WATCHDOG_S
from hardware.quads.bounds import QuadLimits, bounded, motors_off
from hardware.quads.px4.mavlink_link import Px4Link, mode_name
from hardware.quads.px4.mavlink_messages import send_setpoint
from hardware.quads.px4.offboard import LAND, LOST_S, OFFBOARD, OffboardStream
from hardware.states import QuadState, Setpoint
from robo_rl.core.errors import DriverError
from robo_rl.core.flight.frames import swap_attitude, swap_body, swap_world

RATE_HZ = 100.0  # rate of states
GROUND = 1  # landed_state
LOSS_LIMIT_S = 2.0  # largest COM_OF_LOSS_T
# Values of COM_OBL_RC_ACT, PX4's action when the stream is lost, that would crash the craft or let it drift.
BAD_LOSS_ACTIONS = {1: "altitude mode", 2: "manual mode", 6: "flight termination", 7: "disarming in the air"}


class Px4Driver:
    """Driver of a PX4 quadcopter over MAVLink; see `hardware.driver.Driver`.

    address: of the link, in pymavlink's notation: "udpin:0.0.0.0:14540" (simulator or companion computer) or
    "/dev/ttyACM0". baud: of a serial link. arm: arm the motors once in offboard mode; otherwise a pilot arms
    and takes off, and the policy takes over in the air. max_rate_rad_s, max_tilt_rad, max_speed_m_s,
    thrust_low, thrust_high: see `QuadLimits`. check_failsafe: set it to False only for a simulator without
    parameters.
    """

    names: tuple[str, ...] = ()

    def __init__(
        self,
        address: str = "udpin:0.0.0.0:14540",
        baud: int = 921600,
        arm: bool = False,
        max_rate_rad_s: float = 4.0,
        max_tilt_rad: float = 0.6,
        max_speed_m_s: float = 2.0,
        thrust_low: float = 0.0,
        thrust_high: float = 1.0,
        check_failsafe: bool = True,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        self._limits = QuadLimits(max_rate_rad_s, max_tilt_rad, max_speed_m_s, thrust_low, thrust_high)
        self._address, self._baud, self._arm, self._check_failsafe = address, baud, arm, check_failsafe
        self._robot = f"the PX4 at {address}"
        self._link: Px4Link | None = None
        self._stream = OffboardStream(self._robot, arm)

    def connect(self) -> None:
        self.close()
        self._link = link = Px4Link(self._address, self._baud, self._robot)
        try:
            link.wait_for_autopilot()
            if self._check_failsafe:
                self._check_parameters(link)
            for message in ("LOCAL_POSITION_NED", "ATTITUDE_QUATERNION"):
                link.request_rate(message, RATE_HZ)
            link.request_rate("EXTENDED_SYS_STATE", 5.0)
            # The heartbeat has the mode. At its default of 1 Hz, a stop could land a craft that a pilot
            # flies.
            link.request_rate("HEARTBEAT", 10.0)
            link.wait_for(
                ("LOCAL_POSITION_NED", "ATTITUDE_QUATERNION"), "an estimate of its position and attitude"
            )
        except DriverError:
            self.close()
            raise

    def read(self) -> QuadState:
        link = self._open()
        link.send_heartbeat()
        position, attitude = link.newest("LOCAL_POSITION_NED"), link.newest("ATTITUDE_QUATERNION")
        received_s = min(link.received_s("LOCAL_POSITION_NED"), link.received_s("ATTITUDE_QUATERNION"))
        if time.monotonic() - link.heard_s > LOST_S:
            raise DriverError(
                f"{self._robot} has been silent for more than {LOST_S:g} s. Its failsafe controls it now; "
                "check the link, and connect again when it is on the ground."
            )
        a, p = attitude, position
        landed = link.newest("EXTENDED_SYS_STATE")
        battery = link.newest("SYS_STATUS")
        return QuadState(
            received_s,
            swap_world(np.array([p.x, p.y, p.z])),
            swap_attitude(np.array([a.q1, a.q2, a.q3, a.q4])),
            swap_world(np.array([p.vx, p.vy, p.vz])),
            swap_body(np.array([a.rollspeed, a.pitchspeed, a.yawspeed])),
            battery_v=math.nan if battery is None else battery.voltage_battery / 1000.0,
            armed=link.armed,
            flying=link.armed and (landed is None or landed.landed_state != GROUND),
            controlled=link.mode == OFFBOARD and link.armed,
            fault=link.fault(),
        )

    def write(self, command: Setpoint) -> Setpoint:
        link = self._open()
        self._stream.check_open()
        sent = bounded(command, self._limits, self._robot)
        link.send_heartbeat()
        self._stream.check_mode(link.mode == OFFBOARD, f" for {mode_name(link.mode)}{link.last_warning()}")
        self._stream.motors.check(link.armed, motors_off(sent))
        if refusal := link.pop_refusal():
            raise DriverError(f"{self._robot} refuses {refusal}{link.last_warning()}. Nothing was sent.")
        now_s = time.monotonic()
        self._stream.on_setpoint(now_s, motors_off(sent))
        send_setpoint(link, sent, self._robot)
        hint = f"{link.last_warning()}. Check that no other ground station controls it."
        request = self._stream.next_request(now_s, link.mode == OFFBOARD, link.armed, hint)
        if request == "arm":
            link.request_arming()
        elif request is not None:
            link.set_mode(OFFBOARD, tries=0)
        return sent

    def stop(self, reason: str) -> None:
        if self._link is None or self._stream.stopped or not self._stream.used:
            return
        self._stream.stopped = True
        # Before the next heartbeat, an unanswered request may have been accepted already.
        requested = not self._stream.was_offboard and self._link.may_be_offboard()
        if not (self._link.mode == OFFBOARD or requested):
            return  # a pilot or a failsafe controls the craft
        if self._stream.off:
            self._link.disarm_in_flight(tries=3)
            self._link.send_text(f"robo-rl stops the motors: {reason}")
        else:
            self._link.set_mode(LAND, tries=3)
            self._link.send_text(f"robo-rl lands: {reason}")

    def close(self) -> None:
        if self._link is not None:
            self.stop("closed")
            self._link.close()
        self._link, self._stream = None, OffboardStream(self._robot, self._arm)

    def _open(self) -> Px4Link:
        if self._link is None:
            raise DriverError(f"{self._robot} is not connected. Call connect() first.")
        return self._link

    def _check_parameters(self, link: Px4Link) -> None:
        loss_s, action = link.parameter("COM_OF_LOSS_T"), link.parameter("COM_OBL_RC_ACT")
        if loss_s > LOSS_LIMIT_S:
            raise DriverError(
                f"COM_OF_LOSS_T of {self._robot} is {loss_s:g} s, expected at most {LOSS_LIMIT_S:g} s: it is "
                "the time that the craft flies on after the stream is lost. Set it to 1."
            )
        if int(action) in BAD_LOSS_ACTIONS:
            raise DriverError(
                f"COM_OBL_RC_ACT of {self._robot}, its action when the stream is lost, is {int(action)} "
                f"({BAD_LOSS_ACTIONS[int(action)]}). Set it to 4 (land) or 5 (hold)."
            )
