"""Topics and services of one Crazyflie of crazyswarm2's server, over DDS."""

from __future__ import annotations

import math
from typing import Any

from hardware.bus.dds.topics import DdsTopics
from hardware.bus.names import namespace_of
from hardware.quads.crazyswarm2.types import (
    ARM,
    COMMAND,
    INTEGER,
    LAND,
    LOG,
    NOTIFY,
    POSE,
    SET_PARAMETERS,
    STATUS,
    read_status,
    register,
)
from robo_rl.core.errors import BusError

SERVER = "crazyflie_server"
Received = tuple[Any, float] | None  # newest message, local monotonic time of receipt


class Crazyswarm2Topics:
    """Topics and services of one craft.

    name: of the craft in crazyflies.yaml. namespace: of the server. log: name of the custom topic. pose, log,
    status: the newest message and its time of receipt; None before the first.
    """

    def __init__(self, name: str, namespace: str, log: str) -> None:
        self._craft, self._server = namespace_of(f"{namespace}/{name}"), namespace_of(f"{namespace}/{SERVER}")
        self._name, self._topics = name, DdsTopics()  # raises MissingDependencyError before the import below
        from hardware.bus.dds.calls import ServiceClient

        self._ros = self._topics.ros
        register(self._ros)
        self.pose: Received = None
        self.log: Received = None
        self.status: Received = None
        # The server uses the default quality of service, which reliable, volatile endpoints match.
        self._topics.publish(f"{self._craft}/cmd_vel_legacy", COMMAND, reliable=True, latched=False)
        self._topics.subscribe(f"{self._craft}/pose", POSE, self._take_pose)
        self._topics.subscribe(f"{self._craft}/{namespace_of(log)[1:]}", LOG, self._take_log)
        self._topics.subscribe(f"{self._craft}/status", STATUS, self._take_status)
        services = {"arm": ARM, "land": LAND, "notify_setpoints_stop": NOTIFY}
        self._calls = {
            key: ServiceClient(self._topics.participant, self._ros, f"{self._craft}/{key}", kind)
            for key, kind in services.items()
        }
        set_parameters = f"{self._server}/set_parameters"
        self._calls["set_parameters"] = ServiceClient(
            self._topics.participant, self._ros, set_parameters, SET_PARAMETERS
        )
        self._topics.start()

    def missing(self) -> list[str]:
        """Topics and services of the server that are not discovered yet, in words."""
        topics = [("pose", self.pose), ("status", self.status), ("the custom topic", self.log)]
        found = [name for name, received in topics if received is None]
        if not self._topics.has_subscriber(f"{self._craft}/cmd_vel_legacy"):
            found.append("a subscriber of cmd_vel_legacy")
        return found + [f"the service {name}" for name, call in self._calls.items() if not call.ready()]

    def offers(self, service: str) -> bool:
        """True when a server for this service of the craft is discovered, whatever its type."""
        from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsSubscription

        seen = BuiltinDataReader(self._topics.participant, BuiltinTopicDcpsSubscription).read(1000)
        return any(end.topic_name == f"rq{self._craft}/{service}Request" for end in seen)

    def command(self, linear: tuple[float, float, float], turn: float) -> None:
        """Publish cmd_vel_legacy: linear (x, y, z) and the z component of angular, in the server's units."""
        new = self._ros.new
        self._topics.send(
            f"{self._craft}/cmd_vel_legacy",
            linear=new("geometry_msgs/msg/Vector3", **dict(zip("xyz", linear, strict=True))),
            angular=new("geometry_msgs/msg/Vector3", z=turn),
        )

    def set_parameter(self, name: str, value: int, timeout_s: float) -> str:
        """Set a parameter of the firmware through the server; returns the reason of a refusal, or "".

        Raises BusError when the server does not respond within `timeout_s`.
        """
        wanted = self._ros.new("rcl_interfaces/msg/ParameterValue", type=INTEGER, integer_value=value)
        full = f"{self._name}.params.{name}"
        parameter = self._ros.new("rcl_interfaces/msg/Parameter", name=full, value=wanted)
        answer = self._calls["set_parameters"].call(timeout_s, parameters=[parameter])
        if len(answer.results) == 1 and answer.results[0].successful:
            return ""
        return str(answer.results[0].reason) or "refused" if answer.results else "no result"

    def request_arming(self, arm: bool) -> None:
        """Request armed or disarmed motors without waiting; the status has the result."""
        self._calls["arm"].send_request(arm=arm)

    def notify_setpoints_stop(self, timeout_s: float) -> None:
        """Give priority to the high-level commander. Raises BusError without a response."""
        self._calls["notify_setpoints_stop"].call(timeout_s)

    def land(self, duration_s: float, timeout_s: float) -> None:
        """Let the high-level commander descend to height 0. Raises BusError without a response."""
        part, whole = math.modf(duration_s)
        duration = self._ros.new("builtin_interfaces/msg/Duration", sec=int(whole), nanosec=int(part * 1e9))
        self._calls["land"].call(timeout_s, height=0.0, duration=duration)

    def close(self) -> None:
        """Delete the clients and leave the domain."""
        for call in self._calls.values():
            call.close()
        self._topics.close()

    def _take_pose(self, cdr: bytes, now_s: float) -> None:
        self.pose = self._parsed(cdr, POSE, now_s) or self.pose

    def _take_log(self, cdr: bytes, now_s: float) -> None:
        self.log = self._parsed(cdr, LOG, now_s) or self.log

    def _take_status(self, cdr: bytes, now_s: float) -> None:
        try:
            self.status = read_status(self._ros, cdr), now_s
        except BusError:  # another definition of the message; `connect` reports the silence
            return

    def _parsed(self, cdr: bytes, kind: str, now_s: float) -> Received:
        try:
            return self._ros.parse(cdr, kind), now_s
        except BusError:
            return None
