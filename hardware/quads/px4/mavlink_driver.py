"""PX4 over MAVLink, by pymavlink: an offboard stream of body rates and thrust, attitudes or positions.

Each `write` is one message of the stream, and nothing else sends: when writes end, the stream ends. PX4
refuses offboard without a stream, so the mode is asked for once it has run for a second; the answer comes
with later messages.

Guards: ours (`hardware/guard/guard.py`) asks for a landing; behind it PX4's own loss of offboard
(COM_OF_LOSS_T and COM_OBL_RC_ACT), which `connect` checks. A pilot who leaves offboard keeps the craft: we
never ask for it back.
"""

from __future__ import annotations

import math
import time

import numpy as np

from hardware.driver import WATCHDOG_S
from hardware.quads.bounds import QuadLimits, bounded
from hardware.quads.px4.mavlink_link import LAND, OFFBOARD, Px4Link, mode_name
from hardware.quads.px4.mavlink_messages import send_setpoint
from hardware.states import QuadState, Setpoint
from robo_rl.core.errors import DriverError
from robo_rl.core.flight.frames import swap_attitude, swap_body, swap_world

STREAM_S = 1.0  # of setpoints before offboard is asked for; PX4 wants more than 2 Hz
GAP_S = 0.5  # a longer pause starts the stream anew
ASK_S = 0.5  # between two requests for the same thing
ASKS = 6
RATE_HZ = 100.0  # of states
LOST_S = 1.0
GROUND = 1  # landed_state
LOSS_LIMIT_S = 2.0
# COM_OBL_RC_ACT: what PX4 does when the stream is lost. These drop the craft or leave it to nobody.
BAD_LOSS_ACTIONS = {1: "altitude mode", 2: "manual mode", 6: "flight termination", 7: "disarming in the air"}


class Px4Driver:
    """address: of the link, as pymavlink has it: "udpin:0.0.0.0:14540" (simulator, companion),
    "/dev/ttyACM0".

    arm: arm the motors once in offboard; else a pilot arms and takes off, and the policy takes over in the
    air. max_rate_rad_s, max_tilt_rad, max_speed_m_s, thrust_low, thrust_high: see `QuadLimits`.
    check_failsafe: false only in a simulator without parameters.
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
        self._begun_s = self._written_s = self._asked_s = -math.inf
        self._asks, self._was_offboard, self._stopped = 0, False, False

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
            link.request_rate(
                "HEARTBEAT", 10.0
            )  # it says who flies: at its own 1 Hz we would land a pilot's craft
            link.wait_for(
                ("LOCAL_POSITION_NED", "ATTITUDE_QUATERNION"), "an estimate of its position and attitude"
            )
        except DriverError:
            self.close()
            raise

    def read(self) -> QuadState:
        link = self._open()
        link.beat()
        position, attitude = link.newest("LOCAL_POSITION_NED"), link.newest("ATTITUDE_QUATERNION")
        received_s = min(link.received_s("LOCAL_POSITION_NED"), link.received_s("ATTITUDE_QUATERNION"))
        if time.monotonic() - link.heard_s > LOST_S:
            raise DriverError(
                f"{self._robot} has been silent for more than {LOST_S:g} s. Its failsafe flies it now; check "
                "the link, and connect again when it is on the ground."
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
        if self._stopped:
            raise DriverError(f"{self._robot} was told to land. Connect again when it is on the ground.")
        sent = bounded(command, self._limits, self._robot)
        link.beat()
        self._check_obedience(link)
        now_s = time.monotonic()
        if now_s - self._written_s > GAP_S:
            self._begun_s = now_s
        self._written_s = now_s
        send_setpoint(link, sent, self._robot)
        if now_s - self._begun_s > STREAM_S and now_s - self._asked_s > ASK_S:
            self._ask(link, now_s)
        return sent

    def stop(self, reason: str) -> None:
        if self._link is None or self._stopped or self._written_s == -math.inf:
            return
        self._stopped = True
        asked = not self._was_offboard and self._link.may_be_offboard()  # its next heartbeat will tell
        if self._link.mode == OFFBOARD or asked:  # whoever else flies it goes on flying it
            self._link.set_mode(LAND, tries=3)
            self._link.tell(f"robo-rl lands: {reason}")

    def close(self) -> None:
        if self._link is not None:
            self.stop("closed")
            self._link.close()
        self._link, self._stopped, self._was_offboard, self._asks = None, False, False, 0
        self._begun_s = self._written_s = self._asked_s = -math.inf

    def _open(self) -> Px4Link:
        if self._link is None:
            raise DriverError(f"{self._robot} is not connected. Call connect() first.")
        return self._link

    def _check_obedience(self, link: Px4Link) -> None:
        """Raise DriverError when it flies by somebody else's will, or will not take ours."""
        if link.mode == OFFBOARD:
            self._was_offboard = True
        elif self._was_offboard:
            raise DriverError(
                f"{self._robot} left offboard for {mode_name(link.mode)}{link.last_words()}: a pilot or a "
                "failsafe has it now. Nothing was sent. Connect again to go on."
            )
        if refusal := link.take_refusal():
            raise DriverError(f"{self._robot} refuses {refusal}{link.last_words()}. Nothing was sent.")

    def _ask(self, link: Px4Link, now_s: float) -> None:
        """Ask for offboard, then for armed motors, without waiting for an answer."""
        offboard = link.mode == OFFBOARD
        if offboard and (link.armed or not self._arm):
            self._asks = 0
            return
        if self._asks >= ASKS:
            raise DriverError(
                f"{self._robot} did not answer {ASKS} requests to {'arm' if offboard else 'enter offboard'}"
                f"{link.last_words()}. Is another ground station in command?"
            )
        self._asked_s, self._asks = now_s, self._asks + 1
        if offboard:
            link.ask_to_arm()
        else:
            link.set_mode(OFFBOARD, tries=0)

    def _check_parameters(self, link: Px4Link) -> None:
        loss_s, action = link.parameter("COM_OF_LOSS_T"), link.parameter("COM_OBL_RC_ACT")
        if loss_s > LOSS_LIMIT_S:
            raise DriverError(
                f"COM_OF_LOSS_T of {self._robot} is {loss_s:g} s, expected at most {LOSS_LIMIT_S:g} s: it "
                "would fly on without us for so long. Set it to 1."
            )
        if int(action) in BAD_LOSS_ACTIONS:
            raise DriverError(
                f"COM_OBL_RC_ACT of {self._robot} is {int(action)} ({BAD_LOSS_ACTIONS[int(action)]}): what "
                "it does when we are gone. Set it to 4 (land) or 5 (hold)."
            )
