"""Plain DDS topics beside a system that brings its own: messages of any type that `ros_types` knows, no node,
no graph.

A thread takes messages as they arrive: one that waited for us in a buffer would look as if it were new.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from hardware.bus.choose import check_installed
from hardware.bus.dds.cdr import RosTypes, ros_types
from hardware.bus.names import domain_id

_WAIT_S = 0.05
_MOST = 16  # of one topic at a time

Take = Callable[[bytes, float], None]  # CDR, local monotonic time of arrival


class DdsTopics:
    """Writers and readers are made first, then `start`. The domain is ROS_DOMAIN_ID, the network
    ROBO_RL_INTERFACE.
    """

    def __init__(self) -> None:
        check_installed("dds")
        from cyclonedds.core import WaitSet

        from hardware.bus.dds import types as dds_types

        self.ros: RosTypes = ros_types()
        self._dds, self._domain = dds_types, domain_id(None)
        self.participant: Any = dds_types.join(
            self._domain, os.environ.get("ROBO_RL_INTERFACE") or dds_types.LOOPBACK
        )
        self._writers: dict[str, tuple[Any, str]] = {}
        self._readers: list[tuple[Any, Take]] = []
        self._waitset: Any = WaitSet(self.participant)
        self._conditions: list[Any] = []
        self._closing = threading.Event()
        self._receiver = threading.Thread(target=self._receive, daemon=True)

    def publish(self, topic: str, kind: str, reliable: bool, latched: bool) -> None:
        """Offer a full topic name, of which the last message is kept."""
        from cyclonedds.pub import DataWriter

        qos = self._dds.endpoint_qos(reliable, latched, 1)
        self._writers[topic] = DataWriter(self.participant, self._topic(topic, kind), qos), kind

    def subscribe(self, topic: str, kind: str, take: Take) -> None:
        """Ask for a full topic name in the way that matches every publisher: best effort, the newest
        alone.
        """
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState
        from cyclonedds.sub import DataReader

        reader = DataReader(
            self.participant, self._topic(topic, kind), self._dds.endpoint_qos(False, False, 1)
        )
        condition = ReadCondition(reader, ViewState.Any | SampleState.Any | InstanceState.Any)
        self._waitset.attach(condition)
        self._conditions.append(condition)
        self._readers.append((reader, take))

    def start(self) -> None:
        self._receiver.start()

    def heard(self, topic: str) -> bool:
        """Does anybody read what we offer there?"""
        return bool(self._writers[topic][0].get_matched_subscriptions())

    def send(self, topic: str, **fields: Any) -> None:
        """One message; all other fields are zero."""
        writer, kind = self._writers[topic]
        message = self.ros.new(kind, **fields)
        self._dds.write(writer, bytes(self.ros.store.serialize_cdr(message, kind, little_endian=True)))

    def close(self) -> None:
        self._closing.set()
        if self._receiver.is_alive():
            self._receiver.join()
        self._writers, self._readers, self._conditions, self._waitset = {}, [], [], None
        self.participant = None
        self._dds.leave_domain(self._domain)

    def _topic(self, name: str, kind: str) -> Any:
        from cyclonedds.qos import Qos
        from cyclonedds.topic import Topic

        return Topic(self.participant, f"rt{name}", self._dds.carrier(self.ros, kind), Qos(self._dds.PLAIN))

    def _receive(self) -> None:
        while not self._closing.is_set():
            self._waitset.wait(int(_WAIT_S * 1e9))
            now_s = time.monotonic()
            for reader, take in self._readers:
                for cdr, info in self._dds.take(reader, _MOST):
                    if info.valid_data:
                        take(bytes(cdr), now_s)
