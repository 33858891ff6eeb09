"""The bus on rclpy, with a fake rclpy; the real one is tested in test_ros_launch.py."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")


from hardware import messages as m
from hardware.bus import watch
from hardware.bus.choose import choose, make_bus
from hardware.bus.dds.cdr import ros_types
from hardware.bus.protocol import Bus, Profile, RawBus
from hardware.bus.quality import RequestedQos
from hardware.bus.ros import messages as ros_messages
from hardware.bus.ros.bus import RosBus
from hardware.bus.ros.publishers import UNNAMED
from hardware.bus.ros.quality import qos_profile
from hardware.bus.ros.remote import controller_states
from hardware.bus.shield import shielded
from hardware.bus.wire import WIRE
from robo_rl.apps.nodes.log_stream import log_prints
from robo_rl.core.errors import BusError, MissingDependencyError, UnknownNameError
from tests.hardware.bus.fake_rclpy import Node, World, install
from tests.hardware.records import SAMPLES, same


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The fake rclpy; message classes are looked up anew before and after."""
    ros_messages.message_class.cache_clear()
    ros_messages._converters.cache_clear()
    yield install(monkeypatch)
    ros_messages.message_class.cache_clear()
    ros_messages._converters.cache_clear()


@pytest.fixture
def node(world: World) -> Iterator[RosBus]:
    bus = RosBus("tester", "lab")
    yield bus
    bus.close()


def spin_for(bus: RosBus, seconds: float) -> None:
    """Spin for a fixed time."""
    late_s = bus.now() + seconds
    bus.spin(lambda: bus.now() > late_s)


def wait_for(bus: RosBus, true: Callable[[], bool]) -> None:
    late_s = time.monotonic() + 5.0
    bus.spin(lambda: true() or time.monotonic() > late_s)
    assert true(), "it did not happen in time"


def test_implements_the_bus_protocol(node: RosBus) -> None:
    assert isinstance(node, Bus)
    assert isinstance(node, RawBus)
    assert (node.name, node.namespace) == ("tester", "/lab")
    assert abs(node.stamp() - time.time()) < 1.0


@pytest.mark.parametrize("kind", list(WIRE), ids=lambda kind: kind.__name__)
def test_records_pass_the_ros_setters(node: RosBus, kind: type[Any]) -> None:
    """Numbers as array.array, `byte` as bytes, plain floats and ints: types that generated setters accept."""
    got: list[tuple[Any, float]] = []
    node.subscribe("topic", kind, Profile.COMMAND, lambda record, at_s: got.append((record, at_s)))
    publish, sent_s = node.publisher("topic", kind, Profile.COMMAND), node.now()
    publish(SAMPLES[kind])
    wait_for(node, lambda: bool(got))
    assert same(got[0][0], SAMPLES[kind])
    assert sent_s <= got[0][1] <= node.now()


def test_a_raw_subscription_gets_the_bytes(node: RosBus) -> None:
    got: list[bytes] = []
    node.subscribe_raw("topic", m.JointTrajectory, Profile.COMMAND, lambda cdr, at_s: got.append(cdr))
    node.publisher("topic", m.JointTrajectory, Profile.COMMAND)(SAMPLES[m.JointTrajectory])
    wait_for(node, lambda: bool(got))
    assert got == [ros_types("jazzy").encode(SAMPLES[m.JointTrajectory])]


def test_rclpy_decodes_what_the_fast_decoder_does_not(node: RosBus, world: World) -> None:
    """A trajectory with velocities is read by rclpy; bytes that are no message are dropped with a report."""
    got: list[m.JointTrajectory] = []
    node.subscribe("goal", m.JointTrajectory, Profile.COMMAND, lambda record, _: got.append(record))
    kind = ros_messages.message_class("trajectory_msgs/msg/JointTrajectory")
    button = node._node.create_publisher(kind, "goal", qos_profile(RequestedQos(True, False), 1))
    point = ros_messages.new(
        "trajectory_msgs/msg/JointTrajectoryPoint", positions=np.array([0.5]), velocities=np.array([1.0])
    )
    button.publish(ros_messages.new("trajectory_msgs/msg/JointTrajectory", joint_names=["a"], points=[point]))
    button.publish(b"\0\0\0\0\xff\xff\xff\xff")  # big-endian, and too short
    wait_for(node, lambda: bool(got and world.log))
    assert got[0].position_rad.tolist() == [[0.5]]
    assert "cannot be decoded as trajectory_msgs/msg/JointTrajectory" in world.log[0]


def test_pixels_are_copied_as_one_block(node: RosBus) -> None:
    """Copying element by element takes tens of milliseconds; the bound is wide for busy machines."""
    publish = node.publisher("image", m.Image, Profile.SENSOR)
    picture = m.Image(0.0, np.zeros((480, 640, 3), np.uint8))
    publish(picture)
    start_s = time.process_time()
    for _ in range(10):
        publish(picture)
    assert (time.process_time() - start_s) / 10 < 0.01


@pytest.mark.parametrize("kind", [m.Flag, m.JointState, m.JointTrajectory])
def test_qualities_are_those_of_the_profile(node: RosBus, world: World, kind: type[m.Message]) -> None:
    """Also of the messages that are decoded without rclpy: old states and commands do not wait."""
    for profile in Profile:
        node.publisher(profile.value, kind, profile)
        node.subscribe(profile.value, kind, profile, lambda record, _: None)
    asked = {
        end.topic: (end.qos.reliable, end.qos.latched, end.qos.depth)
        for end in world.subscriptions
        if end.topic != "/lab/latched"
    }
    offered = {end.topic: (end.qos.reliable, end.qos.latched, end.qos.depth) for end in world.publishers}
    assert offered == {
        "/lab/command": (True, False, 1),
        "/lab/state": (True, False, 1),
        "/lab/sensor": (False, False, 5),
        "/lab/latched": (True, True, 1),
    }
    del offered["/lab/latched"]
    assert asked == offered | {"/lab/state": (False, False, 1)}


@pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "best effort"])
@pytest.mark.parametrize("latched", [True, False], ids=["transient local", "volatile"])
def test_latched_subscription_matches_every_quality_once(
    node: RosBus, world: World, reliable: bool, latched: bool
) -> None:
    """`ros2 topic pub` is volatile, a driver's button may be best effort: an emergency stop has to arrive."""
    got: list[bool] = []
    node.subscribe("estop", m.Flag, Profile.LATCHED, lambda record, _: got.append(record.on))
    kind, qos = (
        ros_messages.message_class("std_msgs/msg/Bool"),
        qos_profile(RequestedQos(reliable, latched), 1),
    )
    button = node._node.create_publisher(kind, "estop", qos)
    for pressed in (True, False, False, True):
        button.publish(ros_messages.new("std_msgs/msg/Bool", data=pressed))
        spin_for(node, 0.05)
    assert got == [True, False, False, True]
    assert [end.warns for end in world.subscriptions if end.topic == "/lab/estop"] == [True, False, False]


def test_late_subscriber_gets_the_latched_message(node: RosBus) -> None:
    got: list[m.Text] = []
    node.publisher("~/status", m.Text, Profile.LATCHED)(m.Text("ready"))
    node.subscribe("tester/status", m.Text, Profile.LATCHED, lambda record, _: got.append(record))
    wait_for(node, lambda: bool(got))
    assert got == [m.Text("ready")]


def test_age_counts_from_arrival_if_the_middleware_reports_it(node: RosBus, world: World) -> None:
    """Fast DDS reports the time of arrival; CycloneDDS reports 0, so the time of the callback is used."""
    got: list[float] = []
    node.subscribe("topic", m.Flag, Profile.STATE, lambda record, at_s: got.append(node.now() - at_s))
    publish = node.publisher("topic", m.Flag, Profile.STATE)
    for received_ns in (time.time_ns() - 10**9, 0, time.time_ns() + 10**12):
        world.received_ns = received_ns
        publish(m.Flag(True))
    wait_for(node, lambda: len(got) == 3)
    assert 1.0 <= got[0] < 2.0
    assert 0.0 <= got[1] < 0.5
    assert 0.0 <= got[2] < 0.5  # a clock that jumped back makes nothing younger than now


def test_timers_run_on_the_steady_clock(node: RosBus) -> None:
    fired: list[float] = []
    node.timer(0.02, lambda: fired.append(node.now()))
    wait_for(node, lambda: len(fired) == 3)
    with pytest.raises(BusError, match="above 0 s"):
        node.timer(0.0, lambda: None)


def test_services_can_be_called_from_callbacks(node: RosBus) -> None:
    """The fake fails when an executor spins within its own callback; rclpy would hang."""
    answers: list[Any] = []
    node.service("~/start", lambda: (True, "moving"))
    node.timer(0.01, lambda: answers.append(node.call("~/start", 1.0)))
    wait_for(node, lambda: bool(answers))
    assert answers[0] == (True, "moving")
    with pytest.raises(BusError, match="The service '/lab/arm/stop' was not found"):
        node.call("arm/stop", 0.1)
    with pytest.raises(BusError, match=r"Did you mean '/\S*/start'\?"):
        node.call("~/strat", 0.1)
    node.service("dead", lambda: (True, ""))
    with pytest.raises(
        BusError, match=r"did not respond within 0\.05 s.* of rmw_fastrtps_cpp: call it with bus=dds"
    ):
        node.call("dead", 0.05)


def test_malformed_message_is_dropped_and_reported_once(node: RosBus, world: World) -> None:
    got: list[Any] = []
    node.subscribe("joint_states", m.JointState, Profile.COMMAND, lambda record, _: got.append(record))
    node.publisher("joint_states", m.JointState, Profile.COMMAND)
    bad = ros_messages.new("sensor_msgs/msg/JointState", name=["a", "b"], position=np.zeros(3))
    for _ in range(2):
        world.publishers[0].publish(bad)
    world.publishers[0].publish(ros_messages.new("sensor_msgs/msg/JointState"))
    wait_for(node, lambda: bool(got))
    assert len([line for line in world.log if "3 values for 2 joints" in line]) == 1


def test_silent_topic_is_logged(node: RosBus, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SILENT_S", 0.1)
    node.subscribe("joint_states", m.JointState, Profile.STATE, lambda record, _: None)
    wait_for(node, lambda: any("No message on '/lab/joint_states'" in line for line in world.log))


def test_values_that_ros_refuses_are_one_error(node: RosBus) -> None:
    with pytest.raises(BusError, match="cannot hold"):
        node.publisher("diagnostics", m.Diagnostics, Profile.STATE)(
            m.Diagnostics(0.0, (m.Status("s", 300, ""),))
        )


def test_close_delivers_the_last_message_before_shutdown(world: World) -> None:
    """Close waits for subscribers of reliable topics, destroys the nodes, and only then shuts the context
    down. Publishing afterwards is refused.
    """
    node = RosBus("brief")
    publish = node.publisher("command", m.Flag, Profile.COMMAND)
    node.publisher("image", m.Flag, Profile.SENSOR)
    node.service("s", lambda: (True, ""))
    node.call("s", 1.0)
    publish(m.Flag(False))
    node.close()
    node.close()
    assert world.log == ["acked /command", "destroyed _brief_caller", "destroyed brief", "shutdown"]
    assert world.nodes == []
    with pytest.raises(BusError, match="is closed and cannot publish"):
        publish(m.Flag(True))


def test_shutdown_by_another_program_is_reported(node: RosBus) -> None:
    publish = node.publisher("command", m.Flag, Profile.COMMAND)
    node._context.up = False
    with pytest.raises(BusError, match="ROS was shut down under node 'tester'"):
        node.spin(lambda: False)
    with pytest.raises(BusError, match="Publishing on '/lab/command' failed"):
        publish(m.Flag(True))
    node._context.up = True


def test_signals_do_not_interrupt_close() -> None:
    """Ctrl-C twice and SIGTERM during close are ignored; signal handlers are restored afterwards."""
    with shielded():
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_auto_prefers_rclpy(world: World) -> None:
    bus = make_bus("node", "lab")
    assert isinstance(bus, RosBus)
    bus.close()


def test_without_ros_auto_is_dds() -> None:
    assert choose("auto") == "dds"
    assert choose("rclpy") == "rclpy"
    with pytest.raises(UnknownNameError, match="Did you mean 'rclpy'"):
        choose("rclp")


def test_missing_ros_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ROS; ROS of another Python; neither ROS nor the packages; bus=in_process."""
    monkeypatch.delenv("ROS_DISTRO", raising=False)
    with pytest.raises(MissingDependencyError, match=r"source /opt/ros/jazzy/setup\.bash"):
        make_bus("node", bus="rclpy")
    with pytest.raises(BusError, match="bus=in_process connects nodes of one process"):
        make_bus("node", bus="in_process")
    monkeypatch.setattr("hardware.bus.choose.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'robo-rl\[dds\]'"):
        make_bus("node")
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    with pytest.raises(
        MissingDependencyError, match="ROS 2 jazzy is sourced, but its rclpy is for another Python"
    ):
        make_bus("node")
    with pytest.raises(MissingDependencyError, match="rclpy is built for the distribution's own Python"):
        make_bus("node", bus="rclpy")


def test_what_rclpy_refuses_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ValueError has several causes; an empty list is only one of them."""
    empty = "Cannot declare a statically typed parameter with default value of type PARAMETER_NOT_SET"
    told = {empty: "a parameter with an empty list", "invalid node name": "this node: invalid node name. "}
    for refused, said in told.items():
        monkeypatch.setattr(Node, "__init__", Mock(side_effect=ValueError(refused)))
        with pytest.raises(BusError, match=said):
            RosBus("tester")


def test_missing_message_package_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    with pytest.raises(MissingDependencyError, match="sudo apt install ros-jazzy-px4-msgs"):
        ros_messages.message_class("px4_msgs/msg/OffboardControlMode")


def test_node_output_goes_to_its_logger(
    node: RosBus, world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line by line without the node's name, which the logger adds; after close, to the terminal."""
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, getattr(sys, stream))  # put back after the test
    log_prints(node, node.name)
    print("tester: armed.")
    print("two\nlines")
    print("tester: no state.", file=sys.stderr)
    assert world.rosout == ["armed.", "two", "lines"]
    assert world.log == ["no state."]
    node.close()
    print("tester: stopped.")
    assert capsys.readouterr().out == "tester: stopped.\n"


def test_publisher_count_follows_changes(node: RosBus, world: World) -> None:
    """By full topic and full node name, including this node's own."""
    told: list[tuple[str, ...]] = []
    node.watch_publishers("chatter", told.append)
    assert told == [()]
    node.publisher("chatter", m.Text, Profile.COMMAND)
    wait_for(node, lambda: len(told) == 2)
    other = RosBus("other", "lab")
    other.publisher("/lab/chatter", m.Text, Profile.COMMAND)
    wait_for(node, lambda: len(told) == 3)
    other.close()
    assert told[1:] == [("/lab/tester",), ("/lab/other", "/lab/tester")]


def test_publisher_whose_name_left_the_graph_is_told_in_words(node: RosBus, world: World) -> None:
    """A program that ends: ROS knows its publisher a moment longer than its name."""
    told: list[tuple[str, ...]] = []
    publisher = SimpleNamespace(node=SimpleNamespace(), topic="/lab/chatter")
    publisher.node.get_name = lambda: "_NODE_NAME_UNKNOWN_"
    publisher.node.get_namespace = lambda: "_NODE_NAMESPACE_UNKNOWN_"
    world.publishers.append(publisher)
    node.watch_publishers("chatter", told.append)
    world.publishers.clear()
    assert told == [(UNNAMED,)]


def test_states_of_controllers_come_from_the_manager(
    node: RosBus,
) -> None:
    """Without the message package nothing is called; with it, names and states are read."""
    node.watch_controllers("controller_manager", lambda states: pytest.fail("nobody publishes"))
    state = SimpleNamespace(label="inactive")
    activity = SimpleNamespace(controllers=[SimpleNamespace(name="jtc", state=state)], hardware_components=[])
    assert controller_states(activity) == {"jtc": "inactive"}


def test_second_publisher_is_told_before_its_first_message(node: RosBus, world: World) -> None:
    """The graph of ROS does not show it yet, and the next look at it is 0.2 s away."""
    heard: list[tuple[str, Any]] = []
    node.subscribe("chatter", m.Text, Profile.COMMAND, lambda text, at: heard.append(("message", text.text)))
    node.watch_publishers("chatter", lambda names: heard.append(("publishers", names)))
    first, second = RosBus("first", "lab"), RosBus("second", "lab")
    say = first.publisher("chatter", m.Text, Profile.COMMAND)
    say(m.Text("one"))
    wait_for(node, lambda: ("message", "one") in heard)
    rival = second.publisher("chatter", m.Text, Profile.COMMAND)
    world.unseen.append(world.publishers[-1])
    rival(m.Text("two"))
    wait_for(node, lambda: ("message", "two") in heard)
    before = heard[: heard.index(("message", "two"))]
    assert before[-1] == ("publishers", ("/lab/first", UNNAMED))
    world.unseen.clear()
    wait_for(node, lambda: heard[-1] == ("publishers", ("/lab/first", "/lab/second")))
    world.publishers.clear()
    wait_for(node, lambda: heard[-1] == ("publishers", ()))  # without another message
    for bus in (first, second):
        bus.close()
