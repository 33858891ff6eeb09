"""Parameters and action of a ros2_control controller over real rclpy; a second process is the controller."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.arms.ros2_control import Ros2ControlDriver
from hardware.bus.choose import make_bus
from hardware.bus.protocol import ActionBus, Bus, LoggingBus, Profile, RemoteParameterBus
from hardware.messages import Text
from hardware.states import JointCommand
from robo_rl.core.errors import BusError, DriverError

pytest.importorskip("rclpy", reason="no ROS 2 is sourced here: rclpy is missing")
pytest.importorskip("control_msgs", reason="the ROS package control_msgs is not installed")
pytestmark = pytest.mark.ros
JTC = "joint_trajectory_controller/JointTrajectoryController"
USUAL: dict[str, Any] = {
    "joints": ["a", "b"],
    "command_interfaces": ["position"],
    "interpolation_method": "splines",
    "interpolate_from_desired_state": True,
}
LIMITS: dict[str, Any] = {"low_rad": [-1.0] * 2, "high_rad": [1.0] * 2, "velocity_rad_s": [1.0] * 2}
SOON_S = 20.0


@contextmanager
def controller(parameters: dict[str, Any], kind: str = JTC, code: int = 0) -> Iterator[None]:
    """The other process."""
    words = [kind, json.dumps(parameters), str(code)]
    process = subprocess.Popen([sys.executable, str(Path(__file__).with_name("ros_controller.py")), *words])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def bus(domain: int) -> Iterator[Bus]:
    made = make_bus("driver", "", "rclpy")
    yield made
    made.close()


def driven(bus: Bus, output: str, seconds: float = 1.0) -> tuple[dict[str, Any], list[str]]:
    """Messages that the controller received after commands at 50 Hz to 0.3 rad, and the driver's output."""
    said, heard = list[str](), list[str]()
    bus.subscribe("heard", Text, Profile.STATE, lambda text, _: heard.append(text.text))
    arm = Ros2ControlDriver(
        bus,
        ["a", "b"],
        controller="jtc",
        output=output,
        rate_hz=50.0,
        watchdog_s=0.5,
        say=said.append,
        **LIMITS,
    )
    until(bus, lambda: arm.receives_states)
    arm.connect()
    begin_s = bus.now()
    failures = list[DriverError]()

    def write() -> None:
        try:
            arm.write(JointCommand(np.array([min(0.3, 0.5 * (bus.now() - begin_s)), 0.0])))
        except DriverError as error:
            failures.append(error)

    bus.timer(0.02, write)
    bus.spin(lambda: bus.now() - begin_s > seconds)
    if failures:
        raise failures[0]
    return json.loads(heard[-1]), said


def until(bus: Bus, true: Callable[[], bool]) -> None:
    late_s = time.monotonic() + SOON_S
    bus.spin(lambda: true() or time.monotonic() > late_s)
    assert true(), "it did not happen in time"


def test_node_logs_at_two_severities(bus: Bus) -> None:
    """rclpy raises ValueError for two severities from one line of code, which would end the node."""
    assert isinstance(bus, LoggingBus)
    for warning in (False, True, False, True):
        assert bus.log("said", warning=warning)


def test_controller_parameters_are_read(bus: Bus) -> None:
    """Only existing parameters are returned; a missing node is named."""
    assert isinstance(bus, RemoteParameterBus)
    assert isinstance(bus, ActionBus)
    with controller(USUAL | {"gain": 2.5, "count": 3}):
        found = bus.remote_parameters(
            "jtc", ("joints", "gain", "count", "interpolate_from_desired_state", "x"), SOON_S
        )
        assert found == {
            "joints": ["a", "b"],
            "gain": 2.5,
            "count": 3,
            "interpolate_from_desired_state": True,
        }
    with pytest.raises(BusError, match=r"No node '/nobody' answers within 0\.3 s"):
        bus.remote_parameters("nobody", ("x",), 0.3)


def test_trajectory_controller_gets_trajectories(bus: Bus) -> None:
    """At 50 Hz, from one period on, because it starts from its desired state.

    Two seconds: with Fast DDS the controller may hear nothing in the first one.
    """
    with controller(USUAL):
        heard, said = driven(bus, "auto", 2.0)
    assert heard["topic"] > 30
    assert (heard["goals"], heard["forward"]) == (0, 0)
    assert heard["times_s"] == pytest.approx([0.02, 0.04])
    assert not said


def test_controller_without_interpolation_gets_a_start_waypoint(bus: Bus) -> None:
    with controller(USUAL | {"interpolate_from_desired_state": False}):
        heard, said = driven(bus, "auto")
    assert heard["times_s"] == pytest.approx([0.0, 0.02, 0.04])
    assert len(said) == 1
    assert "Set interpolate_from_desired_state: true" in said[0]


def test_forward_controller_gets_positions(bus: Bus) -> None:
    with controller({"joints": ["a", "b"], "interface_name": "position"}, "forward_command_controller/X"):
        heard, _ = driven(bus, "auto")
    assert heard["forward"] > 30
    assert heard["topic"] == 0


def test_action_output_sends_goals(bus: Bus) -> None:
    """At most 10 a second, each of which replaces the one before."""
    with controller(USUAL):
        heard, _ = driven(bus, "action")
    assert 6 <= heard["goals"] <= 12
    assert heard["topic"] == 0
    assert heard["times_s"] == pytest.approx([0.1, 0.2])


def test_failed_goal_stops_the_driver_with_its_reason(bus: Bus) -> None:
    with controller(USUAL, code=-4), pytest.raises(DriverError, match="failed: the joints are too far away"):
        driven(bus, "action")


def test_velocity_controller_is_refused_with_a_remedy(bus: Bus) -> None:
    with (
        controller(USUAL | {"command_interfaces": ["velocity"]}),
        pytest.raises(DriverError, match="Set command"),
    ):
        driven(bus, "auto")
