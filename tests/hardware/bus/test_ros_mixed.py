"""With a real ROS 2: nodes without ROS beside nodes on rclpy, with the RMW that is set.

Skipped where no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash && python3 -m pytest -m ros
Passed with rmw_cyclonedds_cpp and rmw_fastrtps_cpp; services are exchanged with the former alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pytest

pytest.importorskip("ros2cli", reason="no ROS 2 is sourced here: ros2cli is missing")
pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from hardware.bus.choose import make_bus
from hardware.bus.protocol import Bus, Profile
from hardware.messages import Flag, Image, JointJog
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason
from hardware.topics import JOINT_STATES, RAW
from robo_rl.core.errors import BusError, MissingDependencyError
from tests.hardware.arm_descriptions import arm, command, state
from tests.hardware.records import SAMPLES, same

pytestmark = pytest.mark.ros
SOON_S, TRIES = 20.0, 4
CYCLONE = os.environ.get("RMW_IMPLEMENTATION") == "rmw_cyclonedds_cpp"
PICTURE = Image(1.7e9, np.arange(480 * 640 * 3).astype(np.uint8).reshape(480, 640, 3), "camera_optical")


@pytest.fixture
def ros(domain: int) -> Iterator[Bus]:
    bus = make_bus("on_ros", "lab", "rclpy")
    yield bus
    bus.close()


@pytest.fixture
def dds(domain: int) -> Iterator[Bus]:
    bus = make_bus("without_ros", "lab", "dds")
    yield bus
    bus.close()


def turns(first: Bus, second: Bus, true: Callable[[], bool], seconds: float = SOON_S) -> None:
    """Spin both nodes in turns until the condition is true; fail after a time limit."""
    late_s = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < late_s, "it did not happen in time"
        for bus in (first, second):
            until_s = bus.now() + 0.01
            bus.spin(lambda bus=bus, until_s=until_s: bus.now() > until_s)  # type: ignore[misc]


@pytest.mark.parametrize("to_ros", [True, False], ids=["to ROS", "from ROS"])
@pytest.mark.parametrize("kind", list(SAMPLES), ids=lambda kind: kind.__name__)
def test_latched_records_arrive_late(ros: Bus, dds: Bus, kind: type, to_ros: bool) -> None:
    """All types, both ways; the subscriber starts after the message."""
    sender, receiver = (dds, ros) if to_ros else (ros, dds)
    got: list[object] = []
    try:
        sender.publisher("topic", kind, Profile.LATCHED)(SAMPLES[kind])
        receiver.subscribe("topic", kind, Profile.LATCHED, lambda record, _: got.append(record))
    except MissingDependencyError:
        assert kind is JointJog, "its package is not installed with every ROS 2"
        pytest.skip("control_msgs is not installed")
    turns(ros, dds, lambda: bool(got))
    assert same(got[0], SAMPLES[kind])


@pytest.mark.parametrize("to_ros", [True, False], ids=["to ROS", "from ROS"])
def test_pictures_in_many_datagrams(ros: Bus, dds: Bus, to_ros: bool) -> None:
    """0.9 MB each, best effort."""
    sender, receiver = (dds, ros) if to_ros else (ros, dds)
    got: list[Image] = []
    send = sender.publisher("picture", Image, Profile.SENSOR)
    receiver.subscribe("picture", Image, Profile.SENSOR, lambda record, _: got.append(record))
    sender.timer(0.05, lambda: send(PICTURE))
    turns(ros, dds, lambda: len(got) >= 5)
    assert same(got[-1], PICTURE)


def test_publishers_are_counted_and_named(ros: Bus, dds: Bus) -> None:
    """One of each kind; both sides see two, and one again after the other has ended."""
    third = make_bus("third", "lab", "rclpy")
    seen: dict[str, tuple[str, ...]] = {}
    dds.watch_publishers("topic", lambda names: seen.__setitem__("dds", names))
    ros.watch_publishers("topic", lambda names: seen.__setitem__("ros", names))
    dds.publisher("topic", Flag, Profile.COMMAND)
    third.publisher("topic", Flag, Profile.COMMAND)
    turns(ros, dds, lambda: all("/lab/third" in " ".join(names) for names in seen.values()))
    turns(ros, dds, lambda: [len(names) for names in seen.values()] == [2, 2])
    third.close()
    turns(ros, dds, lambda: [len(names) for names in seen.values()] == [1, 1])


def test_emergency_stop_by_ros2_topic_pub_once(domain: int) -> None:
    """A filter without ROS stops each time, though the only message of Fast DDS can be lost."""
    bus, other = make_bus("filter", "", "dds"), make_bus("arm", "", "dds")
    node, numbers = SafetyFilterNode(bus, arm(), say=lambda line: None), count()
    tell, say = JOINT_STATES.publisher(other), RAW.publisher(other)
    bus.timer(0.02, lambda: (tell(state(np.zeros(3))), say(command(np.zeros(3), next(numbers))))[0])
    reasons = set()
    for _ in range(TRIES):
        turns(bus, other, lambda: node.filter.phase is Phase.DISARMED)
        node.filter.on_emergency(False)
        turns(bus, other, lambda: node.filter.arm(bus.now())[0])
        words = ("topic", "pub", "--once", "/estop", "std_msgs/msg/Bool", "{data: true}")
        pressing = subprocess.Popen(
            [sys.executable, str(shutil.which("ros2")), *words], stdout=subprocess.DEVNULL
        )
        turns(bus, other, lambda pressing=pressing: pressing.poll() is not None)  # type: ignore[misc]
        turns(bus, other, lambda: node.filter.phase is Phase.DISARMED, 2.0)
        reasons.add(node.filter.reason)
    assert reasons <= {Reason.EMERGENCY, Reason.EMERGENCY_UNHEARD}
    other.close()
    bus.close()


def test_services_answer_or_say_why_not(ros: Bus, dds: Bus) -> None:
    """Each node calls the other, which does not spin meanwhile: only the error differs by RMW."""
    ros.service("~/arm", lambda: (True, ""))
    dds.service("~/arm", lambda: (True, ""))
    with pytest.raises(
        BusError, match="did not respond" if CYCLONE else "whose RMW is not rmw_cyclonedds_cpp"
    ):
        dds.call("on_ros/arm", 2.0)
    with pytest.raises(BusError, match="did not respond within 2 s; see the output of its node") as said:
        ros.call("without_ros/arm", 2.0)
    assert ("call it with bus=dds" in str(said.value)) is not CYCLONE
