"""With a real ROS 2: the simulated arm by its launch file, seen by a node on rclpy and by one without ROS.

Skipped where no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash && python3 -m pytest -m ros
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("launch_pytest", reason="no ROS 2 is sourced here: launch_pytest is missing")

import launch_pytest
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

from hardware.bus.choose import make_bus
from hardware.bus.protocol import Bus
from hardware.topics import JOINT_STATES, SAFE, SAFETY_STATE
from launch import LaunchDescription

LAUNCH = Path(__file__).resolve().parents[3] / "launch"
SOON_S = 20.0
pytestmark = pytest.mark.ros


@pytest.fixture(autouse=True)
def own_interrupt() -> Iterator[None]:
    """The handler of SIGINT, which a launch file changes, is that of pytest again after a test."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@launch_pytest.fixture
def simulated_arm(domain: int) -> Any:
    """sim.launch.py without a policy, in a domain of its own."""
    source = PythonLaunchDescriptionSource(str(LAUNCH / "sim.launch.py"))
    arguments = {"namespace": "left"}.items()
    return LaunchDescription(
        [IncludeLaunchDescription(source, launch_arguments=arguments), launch_pytest.actions.ReadyToTest()]
    )


@pytest.fixture(params=["rclpy", "dds"])
def probe(request: pytest.FixtureRequest, domain: int) -> Iterator[Bus]:
    """A node beside them; the one without ROS needs rmw_cyclonedds_cpp on the other side, and the same
    interface.
    """
    if request.param == "dds":
        pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")
        if os.environ.get("RMW_IMPLEMENTATION") != "rmw_cyclonedds_cpp":
            pytest.skip("set RMW_IMPLEMENTATION=rmw_cyclonedds_cpp")
    bus = make_bus("probe", "left", request.param)
    yield bus
    bus.close()


def wait_for(bus: Bus, true: Callable[[], bool]) -> None:
    late_s = time.monotonic() + SOON_S
    bus.spin(lambda: true() or time.monotonic() > late_s)
    assert true(), "it did not happen in time"


@pytest.mark.launch(fixture=simulated_arm)
def test_launched_arm_publishes_and_arms(probe: Bus) -> None:
    """States arrive, the filter reports its state, sends commands once armed, and stops on request."""
    states, safety, commands = [], [], []
    JOINT_STATES.subscribe(probe, lambda state, _: states.append(state))
    SAFETY_STATE.subscribe(probe, lambda state, _: safety.append(state))
    SAFE.subscribe(probe, lambda command, _: commands.append(command))
    wait_for(probe, lambda: len(states) > 50 and len(safety) > 1 and len(commands) > 10)
    assert set(commands[0].names) == set(states[0].names)
    assert probe.call("safety_filter/stop", 5.0)[0]
    wait_for(probe, lambda: len(safety) > 4)
