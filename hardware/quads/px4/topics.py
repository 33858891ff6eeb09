"""PX4's topics over DDS: publishers of /fmu/in/... and subscriptions to /fmu/out/... of its bridge."""

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
    """The topics of one PX4, in the domain ROS_DOMAIN_ID.

    namespace: of the topics, before /fmu, such as px4_1 in PX4's simulator with several craft. odometry,
    status: the newest message and its local monotonic time of receipt; None before the first.
    """

    def __init__(self, namespace: str = "") -> None:
        self._fmu = f"{namespace_of(namespace)}/fmu"
        self._topics = topics = DdsTopics()
        register(topics.ros.store)
        self.odometry: tuple[Any, float] | None = None
        self.status: tuple[VehicleStatus, float] | None = None
        for name, kind in SENT.items():
            # Best effort and transient local match the quality of service of every PX4 release.
            topics.publish(f"{self._fmu}/in/{name}", kind, reliable=False, latched=True)
        topics.subscribe(f"{self._fmu}/out/vehicle_odometry", ODOMETRY, self._take_odometry)
        for version in STATUS_VERSIONS:
            topics.subscribe(
                f"{self._fmu}/out/vehicle_status{version}", STATUS, self._take_status, whole=False
            )
        topics.start()

    def send(self, topic: str, **fields: Any) -> None:
        """Publish one message on /fmu/in/<topic>, stamped now; fields that are not given are zero."""
        self._topics.send(f"{self._fmu}/in/{topic}", timestamp=int(time.time() * 1e6), **fields)

    def close(self) -> None:
        """Leave the domain."""
        self._topics.close()

    def _take_status(self, cdr: bytes, now_s: float) -> None:
        status = read_status(cdr)
        self.status = self.status if status is None else (status, now_s)

    def _take_odometry(self, cdr: bytes, now_s: float) -> None:
        try:
            self.odometry = self._topics.ros.parse(cdr, ODOMETRY), now_s
        except BusError:  # another definition of the message; `connect` reports the silence
            return
