"""Publishers and subscribers of any message type over DDS, for drivers whose robot has its own topics.

They belong to no node. A thread takes messages as they arrive, so that the time of receipt is right; a
message that waits in a buffer would look newer than it is.
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
_BATCH = 16  # messages of one topic that are taken at a time

OnMessage = Callable[[bytes, float], None]  # (CDR, local monotonic time of receipt)


class DdsTopics:
    """Set of publishers and subscriptions. Create them first, then call `start`.

    The domain is ROS_DOMAIN_ID, the network interface ROBO_RL_INTERFACE. ros: the message types. Raises
    MissingDependencyError without cyclonedds and rosbags.
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
        self._readers: list[tuple[Any, OnMessage]] = []
        self._waitset: Any = WaitSet(self.participant)
        self._conditions: list[Any] = []
        self._closing = threading.Event()
        self._receiver = threading.Thread(target=self._receive, daemon=True)

    def publish(self, topic: str, kind: str, reliable: bool, latched: bool) -> None:
        """Create a publisher with depth 1. topic: full name. kind: ROS type."""
        from cyclonedds.pub import DataWriter

        qos = self._dds.endpoint_qos(reliable, latched, 1, self._user_data(kind))
        self._writers[topic] = DataWriter(self.participant, self._topic(topic, kind), qos), kind

    def subscribe(self, topic: str, kind: str, on_message: OnMessage, whole: bool = True) -> None:
        """Subscribe with best effort and depth 1, which matches every publisher.

        topic: full name. kind: ROS type. on_message: called in the receiving thread. whole: False for a type
        of which only the first fields are defined here, so that its hash is not known.
        """
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState
        from cyclonedds.sub import DataReader

        reader = DataReader(
            self.participant,
            self._topic(topic, kind),
            self._dds.endpoint_qos(False, False, 1, self._user_data(kind) if whole else ""),
        )
        condition = ReadCondition(reader, ViewState.Any | SampleState.Any | InstanceState.Any)
        self._waitset.attach(condition)
        self._conditions.append(condition)
        self._readers.append((reader, on_message))

    def start(self) -> None:
        """Start the receiving thread."""
        self._receiver.start()

    def has_subscriber(self, topic: str) -> bool:
        """True when a subscriber of our publisher on `topic` is discovered."""
        return bool(self._writers[topic][0].get_matched_subscriptions())

    def send(self, topic: str, **fields: Any) -> None:
        """Publish one message; fields that are not given are zero."""
        writer, kind = self._writers[topic]
        message = self.ros.new(kind, **fields)
        self._dds.write(writer, bytes(self.ros.store.serialize_cdr(message, kind, little_endian=True)))

    def close(self) -> None:
        """Stop the thread and leave the domain."""
        self._closing.set()
        if self._receiver.is_alive():
            self._receiver.join()
        self._writers, self._readers, self._conditions, self._waitset = {}, [], [], None
        self.participant = None
        self._dds.leave_domain(self._domain)

    def _user_data(self, kind: str) -> str:
        """The hash of the type, as ROS' tools compare it."""
        return f"typehash={self.ros.type_hash(kind)};"

    def _topic(self, name: str, kind: str) -> Any:
        from cyclonedds.qos import Qos
        from cyclonedds.topic import Topic

        return Topic(self.participant, f"rt{name}", self._dds.carrier(self.ros, kind), Qos(self._dds.PLAIN))

    def _receive(self) -> None:
        while not self._closing.is_set():
            self._waitset.wait(int(_WAIT_S * 1e9))
            now_s = time.monotonic()
            for reader, on_message in self._readers:
                for cdr, info in self._dds.take(reader, _BATCH):
                    if info.valid_data:
                        on_message(bytes(cdr), now_s)
