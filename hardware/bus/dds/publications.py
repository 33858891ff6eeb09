"""Publishers of topics, as CycloneDDS discovers them: counted and named while a node runs.

CycloneDDS notes a publisher on a topic of its own (DCPSPublication) before it accepts the publisher's first
message. So whoever looks here between taking messages and handling them knows every sender. Reading costs
0.01 ms for each publisher that appears, and nothing while none does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cyclonedds._clayer import ddspy_take_endpoint  # what BuiltinDataReader.take calls
from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsParticipant, BuiltinTopicDcpsPublication
from cyclonedds.core import DDSException, InstanceState, ReadCondition, SampleState, ViewState
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.dds.graph import INFO
from hardware.bus.dds.types import PLAIN, carrier, endpoint_qos
from robo_rl.core.errors import BusError

ALIVE = 16  # DDS state of an instance that still exists
MANY = 1000  # largest number of endpoints and nodes


class NodeNames:
    """Names of nodes by their endpoints, as the nodes announce them on `ros_discovery_info`."""

    def __init__(self, ros: RosTypes, participant: Any) -> None:
        self._ros = ros
        announced = Topic(participant, "ros_discovery_info", carrier(ros, INFO), Qos(PLAIN))
        # The messages of all nodes have the same key, so a depth of 1 would keep only the last of them.
        # Nodes on rmw_cyclonedds warn of a reader without a type hash.
        qos = endpoint_qos(True, True, MANY, f"typehash={ros.type_hash(INFO)};")
        self._reader: Any = DataReader(participant, announced, qos)

    def by_endpoint(self) -> dict[bytes, str]:
        """Full names of nodes by the GUIDs of their endpoints."""
        names: dict[bytes, str] = {}
        for sample in self._reader.read(MANY):
            if sample.sample_info.valid_data:
                for node in self._announced(sample.cdr):
                    full = f"{node.node_namespace.rstrip('/')}/{node.node_name}"
                    gids = [*node.reader_gid_seq, *node.writer_gid_seq]
                    names |= {bytes(gid.data[:16]): full for gid in gids}
        return names

    def close(self) -> None:
        """Release the reader."""
        self._reader = None

    def _announced(self, cdr: bytes) -> list[Any]:
        """Nodes of one announcement; none in a malformed one."""
        try:
            return list(self._ros.parse(cdr, INFO).node_entities_info_seq)
        except BusError:
            return []


class PublisherWatch:
    """Publishers of the watched topics; `poll` reports changes. condition: true while one is pending."""

    def __init__(self, ros: RosTypes, participant: Any) -> None:
        self._participant = participant
        self._reader: Any = BuiltinDataReader(participant, BuiltinTopicDcpsPublication)
        news = SampleState.NotRead | ViewState.Any | InstanceState.Any
        self.condition: Any = ReadCondition(self._reader, news)
        self._nodes = NodeNames(ros, participant)
        self._callbacks: dict[str, list[Callable[[tuple[str, ...]], None]]] = {}
        self._known: dict[str, tuple[str, ...]] = {}  # topic -> names that its callbacks know
        self._sender_callbacks: dict[str, list[Callable[[frozenset[int]], None]]] = {}
        self._alive: dict[bytes, tuple[str, bytes, int]] = {}  # endpoint -> (topic, participant, handle)

    def add(self, topic: str, callback: Callable[[tuple[str, ...]], None]) -> None:
        """Call callback(names) now and whenever the publishers of `topic`, a full name, change."""
        self.poll()
        self._callbacks.setdefault(topic, []).append(callback)
        self._known[topic] = names = self._names(topic)
        callback(names)

    def add_senders(self, topic: str, callback: Callable[[frozenset[int]], None]) -> None:
        """Call callback(handles) now and on changes; messages carry their publisher's handle."""
        self.poll()
        self._sender_callbacks.setdefault(topic, []).append(callback)
        callback(self._senders(topic))

    def poll(self) -> None:
        """Read what was discovered, and tell the callbacks of topics whose publishers changed."""
        if not self.condition.triggered:
            return
        changed = set()
        for found in _take(self.condition):
            before = self._alive.pop(found.key, None)
            if found.alive and found.topic.startswith("rt/"):
                self._alive[found.key] = found.topic[2:], found.participant, found.handle
            if before != (after := self._alive.get(found.key)):
                changed |= {end[0] for end in (before, after) if end is not None}
        for topic in changed & self._sender_callbacks.keys():
            for callback in self._sender_callbacks[topic]:
                callback(self._senders(topic))
        self._report(changed & self._callbacks.keys())

    def look_up_names(self) -> None:
        """Report the names of publishers that were not known yet: a node announces itself after them."""
        self._report({topic for topic, names in self._known.items() if len(names) > 1})

    def close(self) -> None:
        """Release the readers."""
        self._participant = self._reader = self.condition = None
        self._nodes.close()

    def _report(self, topics: set[str]) -> None:
        for topic in topics:
            names = self._names(topic)
            if names != self._known[topic]:
                self._known[topic] = names
                for callback in self._callbacks[topic]:
                    callback(names)

    def _senders(self, topic: str) -> frozenset[int]:
        return frozenset(handle for name, _, handle in self._alive.values() if name == topic)

    def _names(self, topic: str) -> tuple[str, ...]:
        """One name for each publisher of a topic. Names are looked up only where there are several."""
        found = [(key, owner) for key, (name, owner, _) in self._alive.items() if name == topic]
        if len(found) < 2:
            return ("one publisher",) * len(found)
        nodes, processes = self._nodes.by_endpoint(), self._processes()
        return tuple(f"{nodes.get(key, 'a publisher')}{processes.get(owner, '')}" for key, owner in found)

    def _processes(self) -> dict[bytes, str]:
        """Text on the process of each participant, such as " (python, process 71 on lab)"."""
        reader = BuiltinDataReader(self._participant, BuiltinTopicDcpsParticipant)
        return {each.key.bytes: _process(each.qos) for each in reader.read(MANY) if each.qos is not None}


class _Publication(NamedTuple):
    key: bytes
    participant: bytes
    topic: str
    alive: bool
    handle: int  # `publication_handle` of its messages


def _take(condition: Any) -> list[_Publication]:
    """Publications that were discovered or lost. Raises DDSException.

    Their types and qualities of service are not decoded, which would take most of the time.
    """
    found = ddspy_take_endpoint(condition._ref, MANY, _publication, lambda qos: None)
    if isinstance(found, int):
        raise DDSException(found, "Occurred while taking publications.")
    publications: list[_Publication] = found
    return publications


def _publication(key: bytes, participant: bytes, *rest: Any) -> _Publication:
    """Called by cyclonedds for each publication. rest: see `endpoint_constructor` in
    cyclonedds.builtin_types.
    """
    _, topic, _, _, info, _ = rest
    return _Publication(key, participant, topic, info.instance_state == ALIVE, info.instance_handle)


def _process(qos: Any) -> str:
    values = {policy.key: policy.value for policy in qos if isinstance(policy, Policy.Property)}
    if "__Pid" not in values:
        return ""
    name, host = values.get("__ProcessName", "unknown"), values.get("__Hostname", "another machine")
    return f" ({name}, process {values['__Pid']} on {host})"
