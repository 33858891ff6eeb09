"""PX4's modes, and the state of an offboard stream, which both PX4 drivers share.

PX4 accepts offboard mode only while setpoints are coming. A driver therefore streams setpoints first, then
requests offboard mode, then armed motors, and PX4 leaves offboard mode when the stream ends. Motors that were
armed once are not armed again: somebody may stand beside a craft that was disarmed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from hardware.quads.arming import ArmedMotors
from robo_rl.core.errors import DriverError

Mode = tuple[int, int]  # PX4's main mode and sub mode
OFFBOARD: Mode = (6, 0)
LAND: Mode = (4, 6)
CUSTOM_MODE = 1  # first parameter of SET_MODE: the mode is PX4's own
SET_MODE, ARM = 176, 400  # MAV_CMD_DO_SET_MODE, MAV_CMD_COMPONENT_ARM_DISARM
IN_FLIGHT = 21196  # second parameter of ARM: also where PX4 would refuse, as in the air

STREAM_S = 1.0  # time of setpoints before offboard is requested; PX4 needs more than 2 Hz
GAP_S = 0.5  # a longer pause between setpoints starts a new stream
REQUEST_S = 0.5  # time between two requests for the same thing
REQUESTS = 6  # requests without success before the driver gives up
LOST_S = 1.0  # age of the state after which the connection counts as lost

Request = Literal["enter offboard", "arm"]


@dataclass(slots=True)
class OffboardStream:
    """State of one offboard stream.

    robot: the device in words, for error messages. arm: True to arm the motors once in offboard mode. Times
    are local monotonic seconds.
    """

    robot: str
    arm: bool
    started_s: float = -math.inf  # first setpoint of the stream
    written_s: float = -math.inf  # last setpoint
    requested_s: float = -math.inf  # last request
    requests: int = 0  # since the last success
    was_offboard: bool = False
    off: bool = False  # the last setpoint switched the motors off
    stopped: bool = False
    motors: ArmedMotors = field(init=False)

    def __post_init__(self) -> None:
        self.motors = ArmedMotors(self.robot)

    @property
    def used(self) -> bool:
        """True after the first setpoint."""
        return self.written_s > -math.inf

    def check_open(self) -> None:
        """Raise DriverError after a stop."""
        if self.stopped:
            raise DriverError(
                f"{self.robot} is landing after a stop. Connect again when it is on the ground."
            )

    def check_mode(self, offboard: bool, detail: str = "") -> None:
        """Raise DriverError when the craft has left offboard mode. detail: mode and warnings, in words."""
        if offboard:
            self.was_offboard = True
        elif self.was_offboard:
            raise DriverError(
                f"{self.robot} left offboard{detail}: a pilot or a failsafe controls it now. Nothing was "
                "sent. Connect again to continue."
            )

    def on_setpoint(self, now_s: float, off: bool) -> None:
        """Record a setpoint. off: it switches the motors off."""
        if now_s - self.written_s > GAP_S:
            self.started_s = now_s
        self.written_s, self.off = now_s, off

    def next_request(self, now_s: float, offboard: bool, armed: bool, hint: str) -> Request | None:
        """The request to send now, if any: offboard mode, then armed motors.

        Raises DriverError, which ends with `hint`, when PX4 has not followed the last requests.
        """
        if now_s - self.started_s <= STREAM_S or now_s - self.requested_s <= REQUEST_S:
            return None
        if offboard and (armed or not self.arm or self.motors.were_armed):
            self.requests = 0
            return None
        request: Request = "arm" if offboard else "enter offboard"
        if self.requests >= REQUESTS:
            raise DriverError(f"{self.robot} did not {request} after {REQUESTS} requests{hint}")
        self.requested_s, self.requests = now_s, self.requests + 1
        return request
