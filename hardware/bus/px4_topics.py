"""PX4's topics over DDS: /fmu/in/... out of here, /fmu/out/... in, beside the micro XRCE-DDS agent that bridges them.

A thread takes messages as they arrive: one that waited for us in a buffer would look as if it were new.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from hardware.bus.cdr import ros_types
from hardware.bus.choose import check_installed
from hardware.bus.names import domain_id, namespace_of
from hardware.bus.px4_types import (
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
_WAIT_S = 0.05


class Px4Topics:
    """namespace: before /fmu, such as px4_1 of PX4's simulator with several craft. The domain is ROS_DOMAIN_ID."""

    def __init__(self, namespace: str = "") -> None:
        check_installed("dds")
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
        from cyclonedds.pub import DataWriter
        from cyclonedds.qos import Qos
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic

        from hardware.bus import dds_types

        self._dds, self._ros, self._domain = dds_types, ros_types(), domain_id(None)
        register(self._ros.store)
        self._participant: Any = dds_types.join(self._domain, os.environ.get("ROBO_RL_INTERFACE") or dds_types.LOOPBACK)
        # PX4 asks for best effort, and offers transient local to who wants it: these match every release.
        offered = dds_types.endpoint_qos(False, True, 1)
        asked = dds_types.endpoint_qos(False, False, 1)

        def topic(name: str, ros_type: str) -> Any:
            carrier = dds_types.carrier(self._ros, ros_type)
            full = f"rt{namespace_of(namespace)}/fmu/{name}"
            return Topic(self._participant, full, carrier, Qos(dds_types.PLAIN))

        self._writers = {
            name: (DataWriter(self._participant, topic(f"in/{name}", kind), offered), kind)
            for name, kind in SENT.items()
        }
        told = {"vehicle_odometry": ODOMETRY, **{f"vehicle_status{version}": STATUS for version in STATUS_VERSIONS}}
        self._readers = [
            (DataReader(self._participant, topic(f"out/{name}", kind), asked), kind) for name, kind in told.items()
        ]
        self._waitset: Any = WaitSet(self._participant)
        self._conditions = [
            ReadCondition(reader, ViewState.Any | SampleState.Any | InstanceState.Any) for reader, _ in self._readers
        ]
        for condition in self._conditions:
            self._waitset.attach(condition)
        self.odometry: tuple[Any, float] | None = None  # the newest, and when it came
        self.status: tuple[VehicleStatus, float] | None = None
        self._closing = threading.Event()
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()

    def send(self, topic: str, **fields: Any) -> None:
        """One message on /fmu/in/<topic>, stamped now; all other fields are zero."""
        writer, kind = self._writers[topic]
        message = self._ros.new(kind, timestamp=int(time.time() * 1e6), **fields)
        self._dds.write(writer, bytes(self._ros.store.serialize_cdr(message, kind, little_endian=True)))

    def close(self) -> None:
        self._closing.set()
        self._receiver.join()
        self._writers, self._readers, self._conditions, self._waitset = {}, [], [], None
        self._participant = None
        self._dds.leave_domain(self._domain)

    def _receive(self) -> None:
        while not self._closing.is_set():
            self._waitset.wait(int(_WAIT_S * 1e9))
            now_s = time.monotonic()
            for reader, kind in self._readers:
                for cdr, info in self._dds.take(reader, 16):
                    if info.valid_data:
                        self._take(bytes(cdr), kind, now_s)

    def _take(self, cdr: bytes, kind: str, now_s: float) -> None:
        if kind == STATUS:
            status = read_status(cdr)
            self.status = self.status if status is None else (status, now_s)
            return
        try:
            self.odometry = self._ros.parse(cdr, kind), now_s
        except BusError:  # of another definition: silence, which `connect` tells
            return
