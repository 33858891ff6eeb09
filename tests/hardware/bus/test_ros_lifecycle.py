"""With a real ROS 2: `ros2 lifecycle` arms and stops the safety filter, and follows what its services do.

Skipped where no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash && python3 -m pytest -m ros
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ros2cli", reason="no ROS 2 is sourced here: ros2cli is missing")

from hardware.bus.choose import make_bus
from hardware.messages import Flag
from hardware.topics import ESTOP, SAFE
from tests.hardware.bus.test_ros_cli import answer
from tests.hardware.bus.test_ros_parameters import node
from tests.hardware.bus.test_ros_real import wait_for

pytestmark = pytest.mark.ros


def lifecycle(*words: str) -> str:
    return answer("lifecycle", *words)


def state() -> str:
    """State of the filter, as the command line shows it."""
    return lifecycle("get", "/safety_filter").split(" [")[0]


@pytest.fixture
def cell(domain: int, tmp_path: Path) -> Iterator[Path]:
    """A simulated arm and an unarmed filter; the filter's terminal."""
    log = tmp_path / "filter.log"
    with (
        node(tmp_path / "robot.log", "sim_robot", "bus=rclpy"),
        node(log, "safety_filter", "robot=sim_arm", "bus=rclpy"),
    ):
        yield log


def test_ros2_lifecycle_arms_and_stops_the_filter(cell: Path) -> None:
    bus = make_bus("listener", "", "rclpy")
    commands: list[float] = []
    SAFE.subscribe(bus, lambda command, at_s: commands.append(at_s))
    assert state() == "unconfigured"
    # It lists what it finds in this time, by default in half a second.
    wait_for(bus, lambda: "/safety_filter" in lifecycle("nodes", "--spin-time", "3"), 30.0)
    assert "Transitioning successful" in lifecycle("set", "/safety_filter", "configure")
    assert commands == []
    assert "Transitioning successful" in lifecycle("set", "/safety_filter", "activate")
    wait_for(bus, lambda: len(commands) > 20)
    assert "Transitioning successful" in lifecycle("set", "/safety_filter", "deactivate")
    assert state() == "inactive"
    wait_for(bus, lambda: bus.now() - commands[-1] > 0.5)
    assert "Transitioning successful" in lifecycle("set", "/safety_filter", "shutdown")
    assert bus.call("safety_filter/arm", 5.0) == (
        False,
        "this node was shut down by its lifecycle: start it again",
    )
    bus.close()
    said = cell.read_text()
    assert "armed: " in said
    assert "stopping: " in said


def test_lifecycle_state_follows_services_and_emergency_stop(cell: Path) -> None:
    """A refused activation fails, with the reason in the filter's terminal."""
    bus = make_bus("listener", "", "rclpy")
    press = ESTOP.publisher(bus)
    assert state() == "unconfigured"
    assert bus.call("safety_filter/arm", 5.0)[0]
    wait_for(bus, lambda: state() == "active")
    press(Flag(True))
    wait_for(bus, lambda: state() == "inactive")
    assert "Transitioning failed" in lifecycle("set", "/safety_filter", "activate")
    assert state() == "inactive"
    press(Flag(False))
    assert bus.call("safety_filter/stop", 5.0)[0]
    assert "Transitioning successful" in lifecycle("set", "/safety_filter", "activate")
    assert state() == "active"
    bus.close()
    assert "not armed: the emergency stop" in cell.read_text()
