"""The bus on the real rclpy: its own wait set behaves as rclpy's executors do.

Skipped where no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash && python3 -m pytest -m ros
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("ros2cli", reason="no ROS 2 is sourced here: ros2cli is missing")


from hardware.bus.protocol import Profile
from hardware.bus.quality import RequestedQos
from hardware.bus.ros.bus import RosBus
from hardware.bus.ros.quality import qos_profile
from hardware.messages import Flag, JointJog, JointState, JointTrajectory
from tests.hardware.records import SAMPLES, same

pytestmark = pytest.mark.ros
TOPICS, RATE_HZ = 9, 500.0  # of a safety filter


@pytest.fixture
def bus(domain: int) -> Iterator[RosBus]:
    made = RosBus("tester", "lab")
    yield made
    made.close()


@pytest.fixture
def other(domain: int) -> Iterator[RosBus]:
    made = RosBus("other", "lab")
    yield made
    made.close()


def wait_for(bus: RosBus, true: Callable[[], bool], seconds: float = 10.0) -> None:
    late_s = time.monotonic() + seconds
    bus.spin(lambda: true() or time.monotonic() > late_s)
    assert true(), "it did not happen in time"


def spin_for(bus: RosBus, seconds: float) -> None:
    end_s = bus.now() + seconds
    bus.spin(lambda: bus.now() > end_s)


@pytest.mark.parametrize("kind", list(SAMPLES), ids=lambda kind: kind.__name__)
def test_all_records_round_trip(bus: RosBus, other: RosBus, kind: type) -> None:
    if kind is JointJog:
        pytest.importorskip("control_msgs", reason="the ROS package control_msgs is not installed")
    got: list[object] = []
    bus.subscribe("topic", kind, Profile.LATCHED, lambda record, _: got.append(record))
    other.publisher("topic", kind, Profile.LATCHED)(SAMPLES[kind])
    wait_for(bus, lambda: bool(got))
    assert same(got[0], SAMPLES[kind])


@pytest.mark.parametrize("profile", [Profile.STATE, Profile.COMMAND])
@pytest.mark.parametrize("kind", [JointState, JointTrajectory, Flag], ids=lambda kind: kind.__name__)
def test_only_the_newest_message_waits(bus: RosBus, other: RosBus, kind: type, profile: Profile) -> None:
    """A node that was stopped for a while handles no old states and commands: they would count as fresh."""
    got: list[object] = []
    bus.subscribe("topic", kind, profile, lambda record, _: got.append(record))
    publish = other.publisher("topic", kind, profile)
    other.timer(0.02, lambda: publish(SAMPLES[kind]))
    for _ in range(100):  # until they have discovered each other
        spin_for(other, 0.05)
        spin_for(bus, 0.05)
        if got:
            break
    spin_for(other, 0.5)
    got.clear()
    spin_for(bus, 0.2)
    assert len(got) == 1


def test_waiting_uses_little_cpu_time(bus: RosBus) -> None:
    """A filter's timer and subscriptions without messages: rclpy's executor needs three times as much.

    The limit is per tick, and the rate is that of the median tick: other programs delay ticks, but do not
    make them more expensive.
    """
    for number in range(TOPICS):
        bus.subscribe(f"topic_{number}", JointState, Profile.STATE, lambda record, _: None)
    ticks: list[float] = []
    bus.timer(1.0 / RATE_HZ, lambda: ticks.append(bus.now()))
    wait_for(bus, lambda: len(ticks) > 100)
    ticks.clear()
    cpu_s = time.process_time()
    wait_for(bus, lambda: len(ticks) >= 1000)
    assert (time.process_time() - cpu_s) / len(ticks) < 0.10 / RATE_HZ
    assert np.median(np.diff(ticks)) < 1.25 / RATE_HZ


def test_rclpy_logs_incompatible_quality(
    bus: RosBus, other: RosBus, capfd: pytest.CaptureFixture[str]
) -> None:
    """An event of the middleware, which the bus leaves to the executor."""
    bus.subscribe("command", Flag, Profile.COMMAND, lambda record, _: None)
    from std_msgs.msg import Bool

    other._node.create_publisher(Bool, "command", qos_profile(RequestedQos(reliable=False, latched=False), 1))
    late_s = bus.now() + 5.0
    bus.spin(lambda: bus.now() > late_s)
    said = capfd.readouterr()
    assert "incompatible" in said.err + said.out


def test_services_are_served_and_added_while_spinning(bus: RosBus, other: RosBus) -> None:
    bus.service("~/start", lambda: (True, "moving"))
    ended = threading.Event()
    spinner = threading.Thread(target=bus.spin, args=(ended.is_set,))
    spinner.start()
    try:
        assert other.call("tester/start", 5.0) == (True, "moving")
        bus.service("~/stop", lambda: (False, "no"))
        assert other.call("tester/stop", 5.0) == (False, "no")
    finally:
        ended.set()
        spinner.join()


def test_executor_waits_without_a_wait_set(
    domain: int, other: RosBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An rclpy without WaitSet: messages, timers and services still work, and the node reports it."""
    from rclpy.impl.implementation_singleton import rclpy_implementation

    said: list[str] = []
    with monkeypatch.context() as without:
        without.delattr(rclpy_implementation, "WaitSet")
        bus = RosBus("tester", "lab", warn=said.append)
    assert "has no wait set" in said[0]
    got: list[Flag] = []
    ticks: list[float] = []
    bus.subscribe("topic", Flag, Profile.LATCHED, lambda record, _: got.append(record))
    bus.timer(0.02, lambda: ticks.append(bus.now()))
    other.publisher("topic", Flag, Profile.LATCHED)(Flag(True))
    wait_for(bus, lambda: bool(got) and len(ticks) > 10)
    bus.close()


def test_simulated_time_affects_stamps_but_not_timers(bus: RosBus, other: RosBus) -> None:
    """use_sim_time is set in a running node: the subscription of /clock joins the wait set."""
    from rclpy.parameter import Parameter
    from rosgraph_msgs.msg import Clock

    clock = other._node.create_publisher(Clock, "/clock", 1)
    message = Clock()
    message.clock.sec = 42
    bus._node.set_parameters([Parameter("use_sim_time", value=True)])
    bus._waits.changed()
    ticks: list[float] = []
    bus.timer(0.02, lambda: (ticks.append(bus.stamp()), clock.publish(message))[0])
    wait_for(bus, lambda: bool(ticks) and ticks[-1] == 42.0)
    assert len(ticks) > 1
