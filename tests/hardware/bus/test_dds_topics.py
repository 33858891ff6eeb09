"""Publishers and subscriptions of drivers that use DDS without a node."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from cyclonedds.builtin import (
    BuiltinDataReader,
    BuiltinTopicDcpsPublication,
    BuiltinTopicDcpsSubscription,
)

from hardware.bus.dds.graph import INFO
from hardware.bus.dds.publications import NodeNames
from hardware.bus.dds.service import user_data
from hardware.bus.dds.topics import DdsTopics
from tests.hardware.domains import free_domain

POSE, TWIST = "geometry_msgs/msg/PoseStamped", "geometry_msgs/msg/Twist"


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Iterator[DdsTopics]:
    with free_domain() as number:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
        made = DdsTopics()
        yield made
        made.close()


def test_type_hashes_are_announced(topics: DdsTopics) -> None:
    """As `ros2 topic info -v` shows them; none for a type of which only the first fields are known."""
    topics.publish("/cmd", TWIST, reliable=True, latched=False)
    topics.subscribe("/pose", POSE, lambda cdr, at_s: None)
    topics.subscribe("/part", POSE, lambda cdr, at_s: None, whole=False)
    found: dict[str, str] = {}
    late_s = time.monotonic() + 10.0
    readers = [
        BuiltinDataReader(topics.participant, kind)
        for kind in (BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription)
    ]
    while len(found) < 3 and time.monotonic() < late_s:
        for reader in readers:
            found |= {end.topic_name: user_data(end, "typehash") for end in reader.read(100)}
        time.sleep(0.01)
    assert {name: told for name, told in found.items() if name.startswith("rt/")} == {
        "rt/cmd": topics.ros.type_hash(TWIST),
        "rt/pose": topics.ros.type_hash(POSE),
        "rt/part": "",
    }


def test_reader_of_the_names_of_nodes_announces_its_type_hash(topics: DdsTopics) -> None:
    """Each node on rmw_cyclonedds would print a warning about it at every `robo-rl topic`."""
    names = NodeNames(topics.ros, topics.participant)
    ends = BuiltinDataReader(topics.participant, BuiltinTopicDcpsSubscription)
    found: dict[str, str] = {}
    late_s = time.monotonic() + 10.0
    while "ros_discovery_info" not in found and time.monotonic() < late_s:
        found |= {end.topic_name: user_data(end, "typehash") for end in ends.read(100)}
        time.sleep(0.01)
    assert found["ros_discovery_info"] == topics.ros.type_hash(INFO)
    names.close()
