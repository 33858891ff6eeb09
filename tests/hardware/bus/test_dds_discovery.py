"""Discovery on DDS: endpoints as ROS announces them, mismatches, senders."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription
from cyclonedds.qos import Qos

from hardware import messages as m
from hardware.bus import watch
from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import ros_types
from hardware.bus.dds.graph import INFO
from hardware.bus.dds.types import PLAIN, carrier, endpoint_qos
from hardware.bus.protocol import Profile
from tests.hardware.bus.dds_nodes import SOON_S, spin_for, wait_for


def test_discovery_data_match_ros(echo: Any, node: DdsBus) -> None:
    """Topic, type and hash of each endpoint, service ids and the node graph, read by DDS itself."""
    assert node.call("echo/refuse", SOON_S)
    participant = node._participant
    ends = {}
    for topic in (BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription):
        for end in BuiltinDataReader(participant, topic).read(200):
            ends[end.topic_name, topic is BuiltinTopicDcpsPublication] = end
    types = ros_types()
    for name in ("JointState", "Image"):
        for topic, publishes in ((f"rt/lab/back/{name}", True), (f"rt/lab/there/{name}", False)):
            end = ends[topic, publishes]
            assert end.type_name == f"sensor_msgs::msg::dds_::{name}_"
            data = next(policy.data for policy in end.qos if type(policy).__name__ == "Userdata")
            assert data == f"typehash={types.type_hash(f'sensor_msgs/msg/{name}')};".encode()
    request, reply = ends["rq/lab/echo/stopRequest", False], ends["rr/lab/echo/stopReply", True]
    assert request.type_name == "std_srvs::srv::dds_::Trigger_Request_"
    assert reply.type_name == "std_srvs::srv::dds_::Trigger_Response_"
    ids = [next(p.data for p in end.qos if type(p).__name__ == "Userdata") for end in (request, reply)]
    assert ids[0] == ids[1]
    assert ids[0].startswith(b"serviceid=")
    nodes = graph(node)
    assert set(nodes) == {("/lab", "echo"), ("/lab", "tester")}
    assert reply.key.bytes in {bytes(gid.data[:16]) for gid in nodes["/lab", "echo"].writer_gid_seq}
    assert request.key.bytes in {bytes(gid.data[:16]) for gid in nodes["/lab", "echo"].reader_gid_seq}


def graph(bus: DdsBus) -> dict[tuple[str, str], Any]:
    """(namespace, name) -> what the node says of itself on ros_discovery_info."""
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic

    types, found = ros_types(), {}
    topic = Topic(bus._participant, "ros_discovery_info", carrier(types, INFO), Qos(PLAIN))
    reader = DataReader(bus._participant, topic, endpoint_qos(True, True, 10))
    late_s = time.monotonic() + SOON_S
    while len(found) < 2 and time.monotonic() < late_s:
        for sample in reader.take(20):
            for node in types.parse(sample.cdr, INFO).node_entities_info_seq:
                found[node.node_namespace, node.node_name] = node
        time.sleep(0.02)
    return found


def test_incompatible_quality_is_reported_to_the_subscriber(echo: Any, node: DdsBus) -> None:
    """The echo node publishes pictures best effort; a reliable subscription gets none and reports why."""
    node.subscribe("pictures", m.Floats, Profile.COMMAND, lambda record, _: None)
    wait_for(node, lambda: bool(node.said))
    assert "A publisher of '/lab/pictures' does not match" in node.said[0]
    assert "reliability" in node.said[0]


def test_incompatible_quality_is_reported_to_the_publisher(node: DdsBus) -> None:
    other = DdsBus("viewer", "lab", warn=lambda sentence: None)
    node.publisher("camera", m.Text, Profile.SENSOR)
    other.subscribe("camera", m.Text, Profile.LATCHED, lambda record, _: None)
    wait_for(node, lambda: bool(node.said))
    other.close()
    assert "A subscriber of '/lab/camera' does not match" in node.said[0]


def test_silent_topic_is_reported(node: DdsBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason where DDS knows it: another namespace, another type."""
    monkeypatch.setattr(watch, "SILENT_S", 0.3)
    other = DdsBus("driver", "arm1", warn=lambda sentence: None)
    other.publisher("joint_states", m.JointState, Profile.STATE)
    other.publisher("/lab/imu", m.Odometry, Profile.STATE)
    node.subscribe("joint_states", m.JointState, Profile.STATE, lambda record, _: None)
    node.subscribe("imu", m.Imu, Profile.STATE, lambda record, _: None)
    node.subscribe("odom", m.Odometry, Profile.STATE, lambda record, _: None)
    wait_for(node, lambda: len(node.said) == 4)
    other.close()
    assert "does not match this node's quality of service: type" in node.said[0]
    assert "No message on '/lab/joint_states'" in node.said[1]
    assert "did you mean '/arm1/joint_states'?" in node.said[1]
    assert "published as nav_msgs::msg::dds_::Odometry_, not as sensor_msgs::msg::dds_::Imu_" in node.said[2]
    assert "No message on '/lab/odom'" in node.said[3]


@pytest.mark.parametrize("taken", [False, True])
def test_publisher_that_ends_during_the_search_for_a_hint_is_left_out(
    domain: int, node: DdsBus, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """DDS then gives an entry that is not alive, or one without names, which ended the node."""
    node.subscribe("joint_states", m.JointState, Profile.STATE, lambda message, at_s: None)
    other = DdsBus("other", domain=domain)
    other.publisher("/joint_states", m.JointState, Profile.STATE)
    spin_for(node, 0.3)
    assert node._hint("/lab/joint_states") == "did you mean '/joint_states'? Check the namespace"
    entries: list[Any] = []

    class Late(BuiltinDataReader):
        def read(self, count: int) -> Any:
            if taken:
                super().take(count)
            other.close()
            time.sleep(0.2)
            entries.extend(super().read(count))
            return entries

    monkeypatch.setattr("cyclonedds.builtin.BuiltinDataReader", Late)
    assert node._hint("/lab/joint_states") == ""
    assert any(entry.topic_name is None for entry in entries) == taken


def test_publishers_are_counted_before_their_first_message(domain: int, node: DdsBus) -> None:
    """Order of events: none, one, the second publisher, its message; then one again when it leaves."""
    events: list[Any] = []
    node.watch_publishers("chatter", lambda names: events.append(len(names)))
    node.subscribe("chatter", m.Text, Profile.COMMAND, lambda text, _: events.append(text.text))
    node.publisher("chatter", m.Text, Profile.COMMAND)
    wait_for(node, lambda: events == [0, 1])
    other = DdsBus("other", "lab", domain)
    say = other.publisher("chatter", m.Text, Profile.COMMAND)
    say(m.Text("hello"))
    wait_for(node, lambda: "hello" in events)
    other.close()
    wait_for(node, lambda: events[-1] == 1)
    assert events == [0, 1, 2, "hello", 1]


def test_messages_tell_their_sender(domain: int, node: DdsBus) -> None:
    """A publisher is known before its first message, and gone after its end; no message replaces another."""
    events: list[Any] = []
    node.subscribe_senders(
        "estop",
        m.Flag,
        Profile.LATCHED,
        lambda flag, _, sender: events.append((sender, flag.on)),
        lambda senders: events.append(set(senders)),
    )
    own = node.publisher("estop", m.Flag, Profile.LATCHED)
    wait_for(node, lambda: len(events) == 2)
    other = DdsBus("other", "lab", domain)
    say = other.publisher("estop", m.Flag, Profile.LATCHED)
    wait_for(node, lambda: len(events) == 3)
    (first,) = events[1]
    (second,) = events[2] - {first}
    for on in (True, False):
        say(m.Flag(on))
        own(m.Flag(on))
    wait_for(node, lambda: len(events) == 7)
    other.close()
    wait_for(node, lambda: events[-1] == {first})
    of_own = [event[1] for event in events[3:7] if event[0] == first]
    of_other = [event[1] for event in events[3:7] if event[0] == second]
    assert of_own == of_other == [True, False]


def test_watching_publishers_is_cheap(node: DdsBus) -> None:
    """10,000 polls of a bus without changes. The bound is wide for busy machines; one poll takes 3 us."""
    node.watch_publishers("chatter", lambda names: None)
    begun_s = time.process_time()
    for _ in range(10_000):
        node._publisher_watch.poll()
    assert (time.process_time() - begun_s) / 10_000 < 50e-6
