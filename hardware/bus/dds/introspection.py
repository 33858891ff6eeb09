"""Introspection of the bus without ROS: its topics, their publishers and subscribers, and their messages."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription
from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware.bus.dds.cdr import ros_types
from hardware.bus.dds.publications import ALIVE, MANY, NodeNames
from hardware.bus.dds.types import PLAIN, carrier, endpoint_qos, join, leave_domain
from hardware.bus.names import domain_id
from robo_rl.core.errors import BusError, BusNameError
from robo_rl.core.text.nearest import nearest

ANY = ViewState.Any | SampleState.Any | InstanceState.Any
DEPTH = 64  # messages that are buffered before older ones are dropped
POLL_S = 0.02  # period of the search for a topic
SETTLE_S = 0.2  # time for discovering the other endpoints of a topic after the first


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One publisher or subscriber. node: its full name; empty if it belongs to no ROS node."""

    topic: str
    ros_type: str
    publishes: bool
    node: str
    reliable: bool
    latched: bool


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One message as CDR of either byte order."""

    cdr: bytes
    writer: int  # id of the publisher
    sent_s: float  # Unix time, by the publisher's clock
    received_s: float  # local monotonic time


class TopicIntrospector:
    """Observer of a domain, which is not a node. Domain and interface are those of DdsBus.

    Raises BusError for an unusable domain or interface.
    """

    def __init__(self, domain: int | None = None) -> None:
        self._ros, self.domain = ros_types(), domain_id(domain)
        self.interface = os.environ.get("ROBO_RL_INTERFACE") or "lo"
        self._participant: Any = join(self.domain, self.interface)
        kinds = (BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription)
        self._seen: Any = [BuiltinDataReader(self._participant, kind) for kind in kinds]
        self._nodes = NodeNames(self._ros, self._participant)

    def endpoints(self) -> list[Endpoint]:
        """Publishers and subscribers of ROS topics discovered so far, sorted by topic and node."""
        nodes = self._nodes.by_endpoint()
        found = [
            _endpoint(sample, publishes, nodes.get(sample.key.bytes, ""))
            for reader, publishes in zip(self._seen, (True, False), strict=True)
            for sample in reader.read(MANY)
            if sample.sample_info.instance_state == ALIVE and sample.topic_name.startswith("rt/")
        ]
        return sorted(found, key=lambda end: (end.topic, not end.publishes, end.node))

    def find(self, topic: str, wait_s: float) -> list[Endpoint]:
        """The endpoints of a topic, by its full name.

        Raises BusError with the known topics after `wait_s`.
        """
        deadline_s = time.monotonic() + wait_s
        while not any(end.topic == topic for end in self.endpoints()):
            if time.monotonic() >= deadline_s:
                raise self._unknown_topic(topic, wait_s)
            time.sleep(POLL_S)
        time.sleep(SETTLE_S)
        return [end for end in self.endpoints() if end.topic == topic]

    def listen(self, ends: list[Endpoint]) -> TopicListener:
        """A listener to the topic with these endpoints. Raises BusError for an unknown type, or several.

        It subscribes with best effort unless the topic is latched, so that publishers never wait for it.
        """
        topic, types = ends[0].topic, sorted({end.ros_type for end in ends})
        if len(types) > 1:
            raise BusError(
                f"'{topic}' is used with different types, {' and '.join(types)}: its nodes exchange no "
                "messages."
            )
        if not self._ros.knows(types[0]):
            raise BusError(
                f"'{topic}' carries {types[0]}, which is not among the messages of ROS "
                f"{self._ros.distribution}, so it cannot be decoded. `robo-rl topic info` lists its "
                "publishers."
            )
        kept = [end.latched for end in ends if end.publishes] or [end.latched for end in ends]
        qos = endpoint_qos(all(kept), all(kept), DEPTH, f"typehash={self._ros.type_hash(types[0])};")
        made = Topic(self._participant, f"rt{topic}", carrier(self._ros, types[0]), Qos(PLAIN))
        return TopicListener(self._participant, DataReader(self._participant, made, qos))

    def read(self, received: ReceivedMessage, ros_type: str) -> Any:
        """The decoded ROS message. Raises BusError for invalid bytes."""
        return self._ros.parse(received.cdr, ros_type)

    def close(self) -> None:
        """Leave the domain."""
        self._nodes.close()
        self._participant = self._seen = None
        leave_domain(self.domain)

    def _unknown_topic(self, topic: str, waited_s: float) -> BusError:
        found = sorted({end.topic for end in self.endpoints()})
        near = nearest(topic, found, 1) or [name for name in found if name.endswith(topic)][:1]
        hint = f" Did you mean '{near[0]}'?" if near else ""
        known = f" Known topics: {', '.join(found)}." if found else f" {self.no_nodes_message()}"
        error = BusNameError if found else BusError  # without any node, nothing is wrong with the name
        return error(f"There is no topic '{topic}' (waited {waited_s:g} s).{hint}{known}")

    def no_nodes_message(self) -> str:
        """Message for a bus without topics."""
        return (
            f"No node was found in domain {self.domain} on interface '{self.interface}'. Nodes that are "
            "starting are found after some seconds: try again, or set wait_s=10. Otherwise start nodes, for "
            "example with robo-rl up arm_sim, and compare ROS_DOMAIN_ID and ROBO_RL_INTERFACE on both sides."
        )


class TopicListener:
    """Subscription to one topic; see `TopicIntrospector.listen`."""

    def __init__(self, participant: Any, reader: Any) -> None:
        self._reader: Any = reader
        self._condition: Any = ReadCondition(reader, ANY)
        self._waitset: Any = WaitSet(participant)
        self._waitset.attach(self._condition)

    def take(self, wait_s: float) -> Iterator[ReceivedMessage]:
        """The messages received so far, after waiting at most `wait_s` for the first."""
        self._waitset.wait(max(0, int(wait_s * 1e9)))
        received_s = time.monotonic()
        for sample in self._reader.take(DEPTH):
            if (info := sample.sample_info).valid_data:
                yield ReceivedMessage(
                    sample.cdr, info.publication_handle, info.source_timestamp / 1e9, received_s
                )

    def close(self) -> None:
        """Delete the subscription."""
        self._waitset = self._condition = self._reader = None


def ros_type_name(dds_type: str) -> str:
    """ROS name of a DDS type: sensor_msgs::msg::dds_::Image_ -> sensor_msgs/msg/Image.

    Names of types that are not from ROS are returned unchanged.
    """
    words = dds_type.split("::")
    if len(words) != 4 or words[2] != "dds_":
        return dds_type
    return f"{words[0]}/{words[1]}/{words[3].removesuffix('_')}"


def _endpoint(sample: Any, publishes: bool, node: str) -> Endpoint:
    qos = sample.qos
    reliable = qos[Policy.Reliability] != Policy.Reliability.BestEffort
    latched = qos[Policy.Durability] == Policy.Durability.TransientLocal
    return Endpoint(
        sample.topic_name[2:], ros_type_name(sample.type_name), publishes, node, reliable, latched
    )
