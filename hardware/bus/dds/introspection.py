"""Looks on at the bus without ROS: which topics there are, who is at both ends, what passes. It is no node
itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription
from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware.bus.dds.cdr import ros_types
from hardware.bus.dds.graph import INFO
from hardware.bus.dds.types import PLAIN, carrier, endpoint_qos, join, leave_domain
from hardware.bus.names import domain_id
from robo_rl.core.errors import BusError

ANY = ViewState.Any | SampleState.Any | InstanceState.Any
ALIVE = 16  # DDS' number of an instance that still exists
MANY = 1000  # endpoints and nodes, at most
DEPTH = 64  # messages that wait for us before older ones are dropped
LOOK_S = 0.02  # between two looks for a topic
SETTLE_S = 0.2  # once one end of a topic is found, its others follow within this time


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One publisher or subscriber. `node` is its full name, empty for one that is no ROS node."""

    topic: str
    ros_type: str
    publishes: bool
    node: str
    reliable: bool
    latched: bool


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One message: little- or big-endian CDR; by whom and when by the sender's clock, and when it came by
    ours.
    """

    cdr: bytes
    writer: int
    sent_s: float
    received_s: float


class TopicIntrospector:
    """Joins a domain as DdsBus does: the loopback alone, unless ROBO_RL_INTERFACE says otherwise."""

    def __init__(self, domain: int | None = None) -> None:
        self._ros, self.domain = ros_types(), domain_id(domain)
        self.interface = os.environ.get("ROBO_RL_INTERFACE") or "lo"
        self._participant: Any = join(self.domain, self.interface)
        kinds = (BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription)
        self._seen: Any = [BuiltinDataReader(self._participant, kind) for kind in kinds]
        announced = Topic(self._participant, "ros_discovery_info", carrier(self._ros, INFO), Qos(PLAIN))
        # No key tells the nodes' messages apart, so the last one alone would be kept of all of them.
        self._nodes: Any = DataReader(self._participant, announced, endpoint_qos(True, True, MANY))

    def ends(self) -> list[Endpoint]:
        """Publishers and subscribers of ROS topics found so far, by topic and node."""
        nodes = self._names()
        found = [
            _end(sample, publishes, nodes.get(sample.key.bytes, ""))
            for reader, publishes in zip(self._seen, (True, False), strict=True)
            for sample in reader.read(MANY)
            if sample.sample_info.instance_state == ALIVE and sample.topic_name.startswith("rt/")
        ]
        return sorted(found, key=lambda end: (end.topic, not end.publishes, end.node))

    def find(self, topic: str, wait_s: float) -> list[Endpoint]:
        """The ends of a topic, by its full name. Raises BusError where none is found in time; it says what
        there is.
        """
        late_s = time.monotonic() + wait_s
        while not any(end.topic == topic for end in self.ends()):
            if time.monotonic() >= late_s:
                raise self._nobody(topic, wait_s)
            time.sleep(LOOK_S)
        time.sleep(SETTLE_S)
        return [end for end in self.ends() if end.topic == topic]

    def hear(self, ends: list[Endpoint]) -> TopicListener:
        """An ear on the topic with these ends. Raises BusError where its type is not known here, or there are
        two.

        What is not latched is asked for by best effort, so that nobody who commands ever waits for an
        onlooker.
        """
        topic, types = ends[0].topic, sorted({end.ros_type for end in ends})
        if len(types) > 1:
            raise BusError(
                f"'{topic}' is used as {' and as '.join(types)} at once: its ends do not hear each other."
            )
        if types[0] not in self._ros.store.fielddefs:
            raise BusError(
                f"'{topic}' carries {types[0]}, which is not among the messages of ROS "
                f"{self._ros.distribution}: it cannot be read here. `robo-rl topic info` says who publishes "
                "it."
            )
        kept = [end.latched for end in ends if end.publishes] or [end.latched for end in ends]
        qos = endpoint_qos(all(kept), all(kept), DEPTH, f"typehash={self._ros.type_hash(types[0])};")
        made = Topic(self._participant, f"rt{topic}", carrier(self._ros, types[0]), Qos(PLAIN))
        return TopicListener(self._participant, DataReader(self._participant, made, qos))

    def read(self, heard: ReceivedMessage, ros_type: str) -> Any:
        """The message of what was heard. Raises BusError for bytes that are none."""
        return self._ros.parse(heard.cdr, ros_type)

    def close(self) -> None:
        """Leave the domain."""
        self._participant = self._seen = self._nodes = None
        leave_domain(self.domain)

    def _names(self) -> dict[bytes, str]:
        """GUID of an endpoint -> its node's full name, as the nodes have announced them."""
        names: dict[bytes, str] = {}
        for sample in self._nodes.read(MANY):
            if sample.sample_info.valid_data:
                for node in self._ros.parse(sample.cdr, INFO).node_entities_info_seq:
                    full = f"{node.node_namespace.rstrip('/')}/{node.node_name}"
                    gids = [*node.reader_gid_seq, *node.writer_gid_seq]
                    names |= {bytes(gid.data[:16]): full for gid in gids}
        return names

    def _nobody(self, topic: str, waited_s: float) -> BusError:
        there = sorted({end.topic for end in self.ends()})
        near = get_close_matches(topic, there, n=1) or [name for name in there if name.endswith(topic)][:1]
        hint = f" Did you mean '{near[0]}'?" if near else ""
        known = f" There are: {', '.join(there)}." if there else f" {self.silence()}"
        return BusError(f"There is no topic '{topic}' (looked for {waited_s:g} s).{hint}{known}")

    def silence(self) -> str:
        """Message for a bus on which no topic was found."""
        return (
            f"No node was found in domain {self.domain} on interface '{self.interface}'. Nodes that are "
            "starting are found after some seconds: ask again, or wait_s=10. Else start nodes, e.g. by "
            "robo-rl up arm_sim, and compare ROS_DOMAIN_ID and ROBO_RL_INTERFACE on both sides."
        )


class TopicListener:
    """Hears one topic."""

    def __init__(self, participant: Any, reader: Any) -> None:
        self._reader: Any = reader
        self._condition: Any = ReadCondition(reader, ANY)
        self._waitset: Any = WaitSet(participant)
        self._waitset.attach(self._condition)

    def take(self, wait_s: float) -> Iterator[ReceivedMessage]:
        """What has come, after waiting for something for at most `wait_s`."""
        self._waitset.wait(max(0, int(wait_s * 1e9)))
        received_s = time.monotonic()
        for sample in self._reader.take(DEPTH):
            if (info := sample.sample_info).valid_data:
                yield ReceivedMessage(
                    sample.cdr, info.publication_handle, info.source_timestamp / 1e9, received_s
                )

    def close(self) -> None:
        """Let go of the reader."""
        self._waitset = self._condition = self._reader = None


def ros_type_name(dds_type: str) -> str:
    """sensor_msgs::msg::dds_::Image_ -> sensor_msgs/msg/Image; what no ROS made stays as it is."""
    words = dds_type.split("::")
    if len(words) != 4 or words[2] != "dds_":
        return dds_type
    return f"{words[0]}/{words[1]}/{words[3].removesuffix('_')}"


def _end(sample: Any, publishes: bool, node: str) -> Endpoint:
    qos = sample.qos
    reliable = qos[Policy.Reliability] != Policy.Reliability.BestEffort
    latched = qos[Policy.Durability] == Policy.Durability.TransientLocal
    return Endpoint(
        sample.topic_name[2:], ros_type_name(sample.type_name), publishes, node, reliable, latched
    )
