"""PX4's topics over DDS: /fmu/in/... out of here, /fmu/out/... in, beside the XRCE-DDS agent that bridges
them.
"""

from __future__ import annotations

import time
from typing import Any

from hardware.bus.dds.topics import DdsTopics
from hardware.bus.names import namespace_of
from hardware.quads.px4.types import (
    COMMAND,
    ODOMETRY,
    OFFBOARD_MODE,
    RATES,
    STATUS,
    STATUS_VERSIONS,
    VehicleStatus,
    read_status,
    register,
)
from robo_rl.core.errors import BusError

SENT = {"offboard_control_mode": OFFBOARD_MODE, "vehicle_rates_setpoint": RATES, "vehicle_command": COMMAND}


class Px4Topics:
    """namespace: before /fmu, such as px4_1 of PX4's simulator with several craft. The domain is
    ROS_DOMAIN_ID.
    """

    def __init__(self, namespace: str = "") -> None:
        self._fmu = f"{namespace_of(namespace)}/fmu"
        self._topics = topics = DdsTopics()
        register(topics.ros.store)
        self.odometry: tuple[Any, float] | None = None  # the newest, and when it came
        self.status: tuple[VehicleStatus, float] | None = None
        for name, kind in SENT.items():
            # PX4 asks for best effort, and offers transient local to who wants it: these match every release.
            topics.publish(f"{self._fmu}/in/{name}", kind, reliable=False, latched=True)
        topics.subscribe(f"{self._fmu}/out/vehicle_odometry", ODOMETRY, self._take_odometry)
        for version in STATUS_VERSIONS:
            topics.subscribe(f"{self._fmu}/out/vehicle_status{version}", STATUS, self._take_status)
        topics.start()

    def send(self, topic: str, **fields: Any) -> None:
        """One message on /fmu/in/<topic>, stamped now; all other fields are zero."""
        self._topics.send(f"{self._fmu}/in/{topic}", timestamp=int(time.time() * 1e6), **fields)

    def close(self) -> None:
        self._topics.close()

    def _take_status(self, cdr: bytes, now_s: float) -> None:
        status = read_status(cdr)
        self.status = self.status if status is None else (status, now_s)

    def _take_odometry(self, cdr: bytes, now_s: float) -> None:
        try:
            self.odometry = self._topics.ros.parse(cdr, ODOMETRY), now_s
        except BusError:  # of another definition: silence, which `connect` tells
            return
