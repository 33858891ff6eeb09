"""Messages over real DDS on loopback, with a node in its own process; each wait is bounded."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from cyclonedds.pub import DataWriter
from cyclonedds.qos import Qos
from cyclonedds.topic import Topic

from hardware import messages as m
from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import ros_types
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
from tests.hardware.bus.dds_nodes import SOON_S, spin_for, wait_for
from tests.hardware.records import SAMPLES, same


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


def test_default_interface_is_the_loopback(domain: int) -> None:
    """No other interface and no multicast without a setting; another interface is used as ROS uses it."""
    with closing(DdsBus("plain")), pytest.raises(BusError, match="already open on interface 'lo'"):
        join_domain(domain, "eth0")
    assert 'name="lo"' in config("lo")
    assert "<AllowMulticast>false" in config("lo")
    assert 'name="eth0"' in config("eth0")
    assert "Multicast" not in config("eth0")


def test_topic_has_one_type_per_node(node: DdsBus) -> None:
    """DDS allows several types across processes, and then nothing arrives; within a node it is refused."""
    publish = node.publisher("x", m.Flag, Profile.COMMAND)
    with pytest.raises(BusError, match="'/lab/x' carries Flag, found Text"):
        publish(m.Text("on"))
    with pytest.raises(BusError, match="This node uses '/lab/x' as Text and as Flag"):
        node.publisher("x", m.Text, Profile.COMMAND)
