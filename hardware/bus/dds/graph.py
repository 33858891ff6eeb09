"""Announcement of a node without ROS, so that `ros2 node list` and `ros2 node info` show it."""

from __future__ import annotations

from typing import Any

import numpy as np
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Qos
from cyclonedds.topic import Topic

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.dds.types import PLAIN, carrier, endpoint_qos

INFO = "rmw_dds_common/msg/ParticipantEntitiesInfo"


class NodeGraph:
    """Publishes the node's name and endpoints on `ros_discovery_info`, again after each new endpoint."""

    def __init__(self, ros: RosTypes, participant: Any, name: str, namespace: str) -> None:
        self._ros, self._name, self._namespace = ros, name, namespace or "/"
        self._gid = self._gid_of(participant)
        self._readers: list[Any] = []  # their GIDs
        self._writers: list[Any] = []
        self._carrier = carrier(ros, INFO)
        topic = Topic(participant, "ros_discovery_info", self._carrier, Qos(PLAIN))
        self._writer: Any = DataWriter(
            participant, topic, endpoint_qos(True, True, 1, f"typehash={ros.type_hash(INFO)};")
        )
        self._publish()

    def add(self, readers: list[Any], writers: list[Any]) -> None:
        """Announce new endpoints of this node."""
        self._readers += map(self._gid_of, readers)
        self._writers += map(self._gid_of, writers)
        self._publish()

    def _publish(self) -> None:
        """Publish all endpoints, because the topic keeps one message per participant."""
        node = self._ros.new(
            "rmw_dds_common/msg/NodeEntitiesInfo",
            node_namespace=self._namespace,
            node_name=self._name,
            reader_gid_seq=self._readers,
            writer_gid_seq=self._writers,
        )
        message = self._ros.new(INFO, gid=self._gid, node_entities_info_seq=[node])
        self._writer.write(
            self._carrier.of(bytes(self._ros.store.serialize_cdr(message, INFO, little_endian=True)))
        )

    def close(self) -> None:
        """Release the writer."""
        self._writer = None

    def _gid_of(self, entity: Any) -> Any:
        """The 16 bytes of the GUID. Humble's message has 24 bytes; the rest remains zero."""
        gid = self._ros.new("rmw_dds_common/msg/Gid")
        gid.data[:16] = np.frombuffer(entity.guid.bytes, np.uint8)
        return gid
