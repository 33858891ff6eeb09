"""With a real ROS 2: a second publisher of a topic that moves the arm stops the filter, and its name is told.

Skipped where no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash && python3 -m pytest -m ros
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from hardware.bus.choose import make_bus
from hardware.bus.protocol import Bus
from hardware.messages import Flag, JointTrajectory
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.shared.emergency_stop import NOT_TOLD_APART, EmergencyStop
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason
from hardware.topics import ESTOP, JOINT_STATES, RAW, TELEOP
from tests.hardware.arm_descriptions import arm, command, state

pytest.importorskip("rclpy", reason="no ROS 2 is sourced here: rclpy is missing")
pytestmark = pytest.mark.ros
ROOT = Path(__file__).resolve().parents[3]


def wait_for(bus: Bus, true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Spin until the condition is true; fail after a time limit."""
    late_s = time.monotonic() + seconds
    bus.spin(lambda: true() or time.monotonic() > late_s)
    assert true(), "it did not happen in time"


@pytest.mark.parametrize("topic", ["command/raw", "command/safe", "teleop/command", "joint_states"])
def test_second_publisher_stops_the_filter(topic: str, domain: int) -> None:
    """A node of another process on rclpy; the arm can be armed again only after it has left."""
    with closing(make_bus("filter", bus="rclpy")) as bus, closing(make_bus("others", bus="rclpy")) as other:
        node = SafetyFilterNode(bus, arm(), arm=True, say=lambda line: None)
        tell, say, numbers = JOINT_STATES.publisher(other), RAW.publisher(other), count()
        TELEOP.publisher(other)  # a human who does nothing

        def speak() -> None:
            tell(state(np.zeros(3)))
            say(command(np.zeros(3), next(numbers)))

        bus.timer(0.02, speak)
        wait_for(bus, lambda: node.filter.phase is Phase.ARMED and node.filter.reason is None)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.hardware.nodes.stranger", topic, "rclpy"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ['PYTHONPATH']}"},
        )
        try:
            wait_for(bus, lambda: node.filter.phase is Phase.DISARMED)
            # Before ROS has told the second publisher, its state is one that the arm cannot have reached.
            assert node.filter.counts[Reason.SECOND_PUBLISHER] or node.filter.counts[Reason.STATE_JUMP]
            wait_for(bus, lambda: "/stranger" in node.filter.publisher_conflict)
            assert node.filter.arm(bus.now()) == (False, f"not armed: {node.filter.publisher_conflict}")
            process.terminate()
            wait_for(bus, lambda: node.filter.arm(bus.now())[0])
        finally:
            process.kill()
            process.wait()


def test_second_publisher_is_noticed_before_its_first_command(domain: int) -> None:
    """The middleware has matched it by then, whether or not the graph of ROS shows it."""
    publishers, early = list[int](), list[float]()
    with closing(make_bus("listener", bus="rclpy")) as bus, closing(make_bus("others", bus="rclpy")) as other:
        say, numbers = RAW.publisher(other), count()

        def on_command(message: JointTrajectory, received_s: float) -> None:
            if np.abs(message.position_rad).max() == 1.0:  # of the second publisher
                early.append(received_s) if publishers[-1] < 2 else rivals.append(received_s)

        rivals = list[float]()
        RAW.subscribe(bus, on_command)
        bus.watch_publishers(RAW.name, lambda names: publishers.append(len(names)))
        bus.timer(0.02, lambda: say(command(np.zeros(3), next(numbers))))
        wait_for(bus, lambda: publishers[-1] == 1)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.hardware.nodes.stranger", RAW.name, "rclpy"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ['PYTHONPATH']}"},
        )
        try:
            wait_for(bus, lambda: len(rivals) > 20)
            assert early == []
        finally:
            process.kill()
            process.wait()


def test_press_is_not_lost_behind_the_release_of_another(domain: int) -> None:
    """Both come within one look of a busy filter. The release is not accepted, which is reported once."""
    heard, said = list[bool | str](), list[str]()
    with closing(make_bus("filter", bus="rclpy")) as bus, closing(make_bus("others", bus="rclpy")) as other:
        stop = EmergencyStop(
            bus, lambda flag, _: heard.append(flag.on), lambda: heard.append("unheard"), said.append
        )
        first, second = ESTOP.publisher(other), ESTOP.publisher(other)
        for publish in (first, second):  # until they have discovered each other
            publish(Flag(False))
        wait_for(bus, lambda: len(heard) >= 2)
        quiet_s = bus.now() + 0.5
        bus.spin(lambda: bus.now() > quiet_s)
        heard.clear()
        first(Flag(True))
        second(Flag(False))
        time.sleep(0.1)
        wait_for(bus, lambda: bool(stop.refused))
        assert set(heard) == {True}
    assert said == [f"filter: {NOT_TOLD_APART.format(2)}."]
