"""One Crazyflie behind crazyswarm2's server, over DDS: its setpoint topic, its logged topics, its
services.
"""

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
Told = tuple[Any, float] | None  # the newest message, and when it came


class Crazyswarm2Topics:
    """name: of the craft in crazyflies.yaml. namespace: of the server. log: the name of the custom topic."""

    def __init__(self, name: str, namespace: str, log: str) -> None:
        self._craft, self._server = namespace_of(f"{namespace}/{name}"), namespace_of(f"{namespace}/{SERVER}")
        self._name, self._topics = name, DdsTopics()  # says what to install before anything below needs it
        from hardware.bus.dds.calls import ServiceClient

        self._ros = self._topics.ros
        register(self._ros)
        self.pose: Told = None
        self.log: Told = None
        self.status: Told = None
        # The server asks with the system's defaults, and offers reliably: these match under every middleware.
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

    def lacking(self) -> list[str]:
        """What of the server is not yet seen, by the names that its user knows."""
        topics = [("pose", self.pose), ("status", self.status), ("the custom topic", self.log)]
        found = [name for name, told in topics if told is None]
        if not self._topics.has_subscriber(f"{self._craft}/cmd_vel_legacy"):
            found.append("a reader of cmd_vel_legacy")
        return found + [f"the service {name}" for name, call in self._calls.items() if not call.ready()]

    def offers(self, service: str) -> bool:
        """Does anybody answer requests of this craft's service, of whatever type?"""
        from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsSubscription

        seen = BuiltinDataReader(self._topics.participant, BuiltinTopicDcpsSubscription).read(1000)
        return any(end.topic_name == f"rq{self._craft}/{service}Request" for end in seen)

    def command(self, linear: tuple[float, float, float], turn: float) -> None:
        """One setpoint, in the server's own words."""
        new = self._ros.new
        self._topics.send(
            f"{self._craft}/cmd_vel_legacy",
            linear=new("geometry_msgs/msg/Vector3", **dict(zip("xyz", linear, strict=True))),
            angular=new("geometry_msgs/msg/Vector3", z=turn),
        )

    def set_parameter(self, name: str, value: int, timeout_s: float) -> str:
        """Set a parameter of the firmware through the server; returns why it refused, or "". Raises BusError without an
        answer.
        """
        wanted = self._ros.new("rcl_interfaces/msg/ParameterValue", type=INTEGER, integer_value=value)
        full = f"{self._name}.params.{name}"
        parameter = self._ros.new("rcl_interfaces/msg/Parameter", name=full, value=wanted)
        answer = self._calls["set_parameters"].call(timeout_s, parameters=[parameter])
        if len(answer.results) == 1 and answer.results[0].successful:
            return ""
        return str(answer.results[0].reason) or "refused" if answer.results else "no result"

    def ask_to_arm(self, arm: bool) -> None:
        """Without waiting: whether it did, its status tells."""
        self._calls["arm"].send_request(arm=arm)

    def notify_setpoints_stop(self, timeout_s: float) -> None:
        """Give the priority to the high-level commander. Raises BusError without an answer."""
        self._calls["notify_setpoints_stop"].call(timeout_s)

    def land(self, duration_s: float, timeout_s: float) -> None:
        """To height 0 by the high-level commander. Raises BusError without an answer."""
        part, whole = math.modf(duration_s)
        duration = self._ros.new("builtin_interfaces/msg/Duration", sec=int(whole), nanosec=int(part * 1e9))
        self._calls["land"].call(timeout_s, height=0.0, duration=duration)

    def close(self) -> None:
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
        except BusError:  # of another definition: silence, which `connect` tells
            return

    def _parsed(self, cdr: bytes, kind: str, now_s: float) -> Told:
        try:
            return self._ros.parse(cdr, kind), now_s
        except BusError:
            return None
