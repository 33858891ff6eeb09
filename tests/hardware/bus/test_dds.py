"""The bus over real DDS on loopback, with a node in its own process; each wait is bounded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware import messages as m
from hardware.bus import watch
from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import ros_types
from hardware.bus.dds.graph import INFO
from hardware.bus.dds.service import REPLY, REQUEST, decode_reply, encode_request
from hardware.bus.dds.types import (
    MAX_PROCESSES,
    PLAIN,
    carrier,
    config,
    endpoint_qos,
    join_domain,
    leave_domain,
    write,
)
from hardware.bus.protocol import Bus, Profile
from robo_rl.core.errors import BusError
from tests.hardware.records import SAMPLES, same

ROOT = Path(__file__).resolve().parents[3]
SOON_S = 10.0  # a busy machine may take its time; nothing waits for as long when all is well


def spin_for(bus: DdsBus, seconds: float) -> None:
    """Spin for a fixed time."""
    late_s = bus.now() + seconds
    bus.spin(lambda: bus.now() > late_s)


def wait_for(bus: DdsBus, true: Callable[[], bool]) -> None:
    """Spin until the condition is true; fail after a time limit."""
    late_s = time.monotonic() + SOON_S
    bus.spin(lambda: true() or time.monotonic() > late_s)
    assert true(), "it did not happen in time"


@pytest.fixture
def echo(domain: int) -> Iterator[subprocess.Popen[str]]:
    """The echo node, running."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hardware.bus.echo"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    yield process
    process.kill()
    process.communicate(timeout=SOON_S)


@pytest.fixture
def node(domain: int) -> Iterator[DdsBus]:
    """A node in this process; its warnings are in `said`."""
    said: list[str] = []
    bus = DdsBus("tester", "lab", warn=said.append)
    bus.said = said  # type: ignore[attr-defined]
    yield bus
    bus.close()


def test_implements_the_bus_protocol(node: DdsBus) -> None:
    assert isinstance(node, Bus)


def test_all_records_round_trip(echo: Any, node: DdsBus) -> None:
    """Two processes, nine types, eighteen topics: the answer equals the message, bit for bit."""
    pixels = np.arange(480 * 640 * 3).astype(np.uint8).reshape(480, 640, 3)
    records = SAMPLES | {m.Image: m.Image(1.7e9, pixels, "camera_optical")}
    back: dict[type[Any], Any] = {}
    sends = []
    for kind, record in records.items():
        node.subscribe(
            f"back/{kind.__name__}", kind, Profile.COMMAND, lambda r, _, kind=kind: back.update({kind: r})
        )
        publish = node.publisher(f"there/{kind.__name__}", kind, Profile.COMMAND)
        sends.append(lambda kind=kind, publish=publish, record=record: kind in back or publish(record))
    node.timer(0.1, lambda: [send() for send in sends])
    wait_for(node, lambda: len(back) == len(records))
    for kind, record in records.items():
        assert same(back[kind], record), kind


def test_late_subscriber_gets_the_latched_message(echo: Any, node: DdsBus) -> None:
    """The publisher sent it once, before this subscriber was made."""
    assert node.call("echo/refuse", SOON_S)  # it is up
    heard: list[tuple[m.Text, float]] = []
    asked_s = node.now()
    node.subscribe("hello", m.Text, Profile.LATCHED, lambda text, at_s: heard.append((text, at_s)))
    wait_for(node, lambda: bool(heard))
    assert heard[0][0] == m.Text("I am here")
    assert asked_s <= heard[0][1] <= node.now()


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "best effort"])
@pytest.mark.parametrize("latched", [True, False], ids=["transient local", "volatile"])
def test_latched_subscription_matches_every_quality_once(node: DdsBus, reliable: bool, latched: bool) -> None:
    """`ros2 topic pub` is volatile, a driver's button may be best effort: an emergency stop has to arrive."""
    got: list[bool] = []
    node.subscribe("estop", m.Flag, Profile.LATCHED, lambda flag, _: got.append(flag.on))
    topic = Topic(node._participant, "rt/lab/estop", carrier(ros_types(), "std_msgs/msg/Bool"), Qos(PLAIN))
    button = DataWriter(node._participant, topic, endpoint_qos(reliable, latched, 1))
    for count, pressed in enumerate((True, False, False, True), start=1):
        write(button, ros_types().encode(m.Flag(pressed)))
        wait_for(node, lambda count=count: len(got) >= count)
        spin_for(node, 0.05)
    assert got == [True, False, False, True]
    spin_for(node, 1.2)  # mismatches are reported once a second
    assert not [line for line in node.said if "quality of service" in line]  # type: ignore[attr-defined]


def test_latched_message_does_not_follow_a_newer_one(node: DdsBus) -> None:
    """A subscriber that joins while the publisher sends ends with the newest message, in every trial."""
    press = node.publisher("estop", m.Flag, Profile.LATCHED)
    for _ in range(20):
        got: list[bool] = []
        press(m.Flag(False))
        node.subscribe("estop", m.Flag, Profile.LATCHED, lambda flag, _, got=got: got.append(flag.on))
        press(m.Flag(True))
        wait_for(node, lambda got=got: bool(got))
        spin_for(node, 0.02)
        assert got[-1] is True


def test_services_answer_across_processes(echo: subprocess.Popen[str], node: DdsBus) -> None:
    """Success and failure with a message, three times over one client; then a service ends the node."""
    for _ in range(3):
        assert node.call("echo/refuse", SOON_S) == (False, "not now: ü")
    assert node.call("/lab/echo/stop", SOON_S) == (True, "leaving")
    assert echo.communicate(timeout=SOON_S)[0] == "closed\n"
    assert echo.returncode == 0


def test_missing_service_is_reported(node: DdsBus) -> None:
    with pytest.raises(
        BusError,
        match=r"The service '/lab/arm/start' was not found \(waited 0.2 s\)\. No services were found",
    ):
        node.call("arm/start", 0.2)


def test_unknown_service_error_names_the_nearest(echo: Any, node: DdsBus) -> None:
    """Another process offers two. A service that is only requested, here by this node, is not listed."""
    assert node.call("echo/refuse", SOON_S)
    with pytest.raises(BusError, match=r"The service '/lab/echo/stpo'.*Did you mean '/lab/echo/stop'\?"):
        node.call("echo/stpo", 0.2)
    with pytest.raises(BusError, match=r"Did you mean '/lab/echo/stop'\?"):
        node.call("/echo/stop", 0.2)
    with pytest.raises(BusError, match="Known services: /lab/echo/refuse, /lab/echo/stop"):
        node.call("xyz", 0.2)


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


def test_malformed_message_is_dropped_and_reported_once(node: DdsBus) -> None:
    """Two joints and three positions: the callback is not called, and the node continues."""
    types, got = ros_types(), []
    node.subscribe("joint_states", m.JointState, Profile.COMMAND, lambda record, _: got.append(record))
    node.publisher("joint_states", m.JointState, Profile.COMMAND)
    writer = node._writers[0].dds
    bad = types.new("sensor_msgs/msg/JointState", name=["a", "b"], position=np.zeros(3))
    good = types.new("sensor_msgs/msg/JointState", name=["a"], position=np.zeros(1))
    for message in (bad, bad, good):
        cdr = bytes(types.store.serialize_cdr(message, "sensor_msgs/msg/JointState"))
        writer.write(carrier(types, "sensor_msgs/msg/JointState").of(cdr))
        node.spin(iter([False, False, True]).__next__)
    wait_for(node, lambda: bool(got))
    assert [record.names for record in got] == [("a",)]
    assert len(node.said) == 1
    assert "3 values for 2 joints" in node.said[0]


class OneEyedClient:
    """Client of /lab/tester/arm that cannot receive answers before `open_eye`, as if its reader were
    discovered late.
    """

    def __init__(self, domain: int) -> None:
        self.bus = DdsBus("asker", "lab", domain, warn=lambda sentence: None)
        participant: Any = self.bus._participant
        self.id = "1.2.3.4.5.6.7.8.9.a.b.c.d.e.f.10"
        self.qos = endpoint_qos(True, False, 10, f"clientid={self.id};")
        self.writer: Any = DataWriter(
            participant, Topic(participant, "rq/lab/tester/armRequest", REQUEST), self.qos
        )
        self.reader: Any = None

    def ask(self) -> None:
        late_s = time.monotonic() + SOON_S
        while not self.writer.get_matched_subscriptions() and time.monotonic() < late_s:
            time.sleep(0.005)
        self.writer.write(REQUEST.of(encode_request(7, 1)))

    def open_eye(self) -> None:
        participant: Any = self.bus._participant
        self.reader = DataReader(participant, Topic(participant, "rr/lab/tester/armReply", REPLY), self.qos)

    def heard(self) -> list[tuple[bool, str]]:
        return [decode_reply(sample.cdr) for sample in self.reader.take(16)]

    def close(self) -> None:
        self.writer = self.reader = None
        self.bus.close()


@pytest.mark.parametrize("opens", [False, True], ids=["never hears", "hears late"])
def test_undiscovered_client_does_not_block_timers(domain: int, node: DdsBus, opens: bool) -> None:
    """Timers continue while the client's reader is not discovered; they once stood still for 0.1 s."""
    ticks_s: list[float] = []
    asked: list[float] = []
    node.service("~/arm", lambda: (asked.append(node.now()), (True, "armed"))[1])
    node.timer(0.005, lambda: ticks_s.append(node.now()))
    client = OneEyedClient(domain)
    try:
        client.ask()
        wait_for(node, lambda: bool(asked))
        if opens:
            client.open_eye()
        node.spin(lambda: node.now() > asked[0] + 0.3)
        since = [asked[0], *(at for at in ticks_s if asked[0] < at < asked[0] + 0.2)]
        assert max(np.diff(since)) < 0.08
        if opens:
            assert client.heard() == [(True, "armed")]
    finally:
        client.close()


@pytest.mark.parametrize("late_s", [0.0, 0.005])
def test_age_counts_from_arrival(node: DdsBus, monkeypatch: pytest.MonkeyPatch, late_s: float) -> None:
    """A message that arrived during a long callback is not stamped as new.

    The same holds when the machine is busy and resumes the process a moment after a wait has ended.
    """
    got: list[float] = []
    wait = node._waitset.wait
    monkeypatch.setattr(node._waitset, "wait", lambda most_ns: (wait(most_ns), time.sleep(late_s))[0])
    node.subscribe("joint_states", m.Text, Profile.STATE, lambda record, at_s: got.append(node.now() - at_s))
    publish = node.publisher("joint_states", m.Text, Profile.STATE)

    def busy() -> None:
        if not got:
            publish(m.Text("now"))
            time.sleep(0.2)

    node.timer(0.01, busy)
    wait_for(node, lambda: bool(got))
    assert 0.19 < got[0] < 2.0


def test_command_queue_keeps_the_newest(node: DdsBus) -> None:
    """Ten commands during one callback become one: the last."""
    got: list[str] = []
    node.subscribe("command", m.Text, Profile.COMMAND, lambda record, _: got.append(record.text))
    publish = node.publisher("command", m.Text, Profile.COMMAND)
    for number in range(10):
        publish(m.Text(str(number)))
    wait_for(node, lambda: bool(got))
    assert got == ["9"]


def test_hanging_subscriber_blocks_no_publisher(echo: subprocess.Popen[str], node: DdsBus) -> None:
    """A reliable reader in a stopped process acknowledges nothing; publishing and closing continue."""
    assert node.call("echo/refuse", SOON_S)
    publish = node.publisher("there/JointTrajectory", m.JointTrajectory, Profile.COMMAND)
    late_s = time.monotonic() + SOON_S
    while not node._writers[0].dds.get_matched_subscriptions() and time.monotonic() < late_s:
        time.sleep(0.01)
    echo.send_signal(signal.SIGSTOP)
    start_s = time.monotonic()
    for _ in range(500):
        publish(SAMPLES[m.JointTrajectory])
    assert time.monotonic() - start_s < 2.0
    node.close()
    assert time.monotonic() - start_s < 4.0  # a second for the stopped one to acknowledge, which it does not
    echo.send_signal(signal.SIGCONT)


def test_closed_node_sends_nothing_and_frees_the_domain(domain: int) -> None:
    """Publishing after close is refused; the process may open the domain again, on another interface too."""
    bus = DdsBus("brief")
    publish = bus.publisher("x", m.Flag, Profile.COMMAND)
    with pytest.raises(BusError, match="already open on interface 'lo', not 'eth9'"):
        join_domain(domain, "eth9")
    bus.close()
    bus.close()
    with pytest.raises(BusError, match="is closed and cannot publish"):
        publish(m.Flag(True))
    join_domain(domain, "lo")
    leave_domain(domain)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("ROS_DOMAIN_ID", "seven", "'seven'; expected a whole number"),
        ("ROS_DOMAIN_ID", "233", "0 to 232"),
        ("ROBO_RL_INTERFACE", "nope7", "interface 'nope7'"),
        ("ROBO_RL_INTERFACE", "<x/>", "is no network interface"),
        ("ROS_DISTRO", "noetic", "'noetic' is not supported"),
    ],
)
def test_wrong_settings_are_refused(
    domain: int, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, said: str
) -> None:
    ros_types.cache_clear()
    monkeypatch.setenv(setting, value)
    with pytest.raises(BusError, match=said):
        DdsBus("node")


def test_exhausted_ports_are_reported_with_a_remedy(domain: int) -> None:
    """All participant ports of the loopback are taken, as by 33 processes."""
    places = [7400 + 250 * domain + 10 + 2 * i for i in range(MAX_PROCESSES + 1)]
    with ExitStack() as taken:
        for port in places:
            taken.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind(("", port))
        with pytest.raises(
            BusError, match=rf"domain {domain} on .* can have 32 nodes per domain.*ROS_DOMAIN_ID"
        ):
            DdsBus("one_too_many")
    DdsBus("in_time").close()


@pytest.mark.parametrize("topic", ["", "a b", "1st", "a//b", "~/é"])
def test_names_follow_the_rules_of_ros(node: DdsBus, topic: str) -> None:
    with pytest.raises(BusError, match="cannot be the name of a topic"):
        node.publisher(topic, m.Flag, Profile.COMMAND)


def test_default_interface_is_the_loopback() -> None:
    """No other interface and no multicast without a setting."""
    assert 'name="lo"' in config("lo")
    assert "<AllowMulticast>false" in config("lo")
    assert 'name="eth0"' in config("eth0")


def test_topic_has_one_type_per_node(node: DdsBus) -> None:
    """DDS allows several types across processes, and then nothing arrives; within a node it is refused."""
    publish = node.publisher("x", m.Flag, Profile.COMMAND)
    with pytest.raises(BusError, match="'/lab/x' carries Flag, found Text"):
        publish(m.Text("on"))
    with pytest.raises(BusError, match="This node uses '/lab/x' as Text and as Flag"):
        node.publisher("x", m.Text, Profile.COMMAND)


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
