"""Teleoperation by `ros2 topic pub` with a real ROS 2, a robot without ROS and a filter on rclpy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from hardware.bus.choose import make_bus
from hardware.bus.protocol import Bus
from hardware.messages import Diagnostics, Flag, JointState, JointTrajectory
from hardware.topics import DIAGNOSTICS, INTERVENTION, JOINT_STATES, SAFE, SAFETY_STATE

pytest.importorskip("ros2cli", reason="no ROS 2 is sourced here: ros2cli is missing")
pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")
pytestmark = pytest.mark.ros
ROOT = Path(__file__).resolve().parents[3]
SOON_S = 30.0
NODES = (
    ("sim_robot", "robot=sim_arm", "bus=dds"),
    ("safety_filter", "robot=sim_arm", "bus=rclpy", "arm=true"),
    ("diagnostics", "bus=dds"),
)


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ['PYTHONPATH']}"}
    started = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.terminate()
        started.wait(timeout=SOON_S)


def ros2(*words: str) -> list[str]:
    return [sys.executable, str(shutil.which("ros2")), *words]


def publish(topic: str, kind: str, content: str) -> list[str]:
    return ros2("topic", "pub", "-r", "25", topic, kind, content)


class Listener:
    """A node beside them, on rclpy."""

    def __init__(self, bus: Bus) -> None:
        self.bus, self.reasons = bus, list[str]()
        self.states: list[JointState] = []
        self.safe: list[JointTrajectory] = []
        self.diagnostics: list[Diagnostics] = []
        JOINT_STATES.subscribe(bus, lambda message, _: self.states.append(message))
        SAFE.subscribe(bus, lambda message, _: self.safe.append(message))
        DIAGNOSTICS.subscribe(bus, lambda message, _: self.diagnostics.append(message))
        SAFETY_STATE.subscribe(bus, lambda message, _: self.reasons.append(message.status[0].message))
        self.intervene = INTERVENTION.publisher(bus)

    def wait(self, true: Callable[[], bool]) -> None:
        late_s = time.monotonic() + SOON_S
        self.bus.spin(lambda: true() or time.monotonic() > late_s)
        assert true(), f"it did not happen in time; the filter says {self.reasons[-1:]}"

    @property
    def place(self) -> np.ndarray:
        return self.states[-1].position_rad


@pytest.fixture
def listener(domain: int) -> Iterator[Listener]:
    """The listener, once the armed filter holds the arm."""
    with ExitStack() as stack:
        for words in NODES:
            stack.enter_context(process(sys.executable, "-m", "robo_rl.apps.node", *words))
        bus = make_bus("listener", "", "rclpy")
        stack.callback(bus.close)
        made = Listener(bus)
        made.wait(lambda: len(made.safe) > 10 and bool(made.states))
        yield made


def test_joint_jog_and_twist_by_ros2_topic_pub(listener: Listener) -> None:
    """The jog turns the first joint alone; the twist after it the others. Headers carry the base frame."""
    pytest.importorskip("control_msgs", reason="the ROS package control_msgs is not installed")
    assert listener.states[-1].frame == listener.safe[-1].frame == "base_link"
    begun_rad = listener.place.copy()
    listener.intervene(Flag(True))
    jog = "{joint_names: [base], velocities: [0.4]}"
    with process(*publish("/teleop/joint_jog", "control_msgs/msg/JointJog", jog)):
        listener.wait(lambda: listener.place[0] - begun_rad[0] > 0.2)
    assert np.abs(listener.place[1:] - begun_rad[1:]).max() < 0.05
    listener.wait(lambda: "it goes on after safety_filter/arm" in listener.reasons[-1])  # a second of silence
    turned_rad = listener.place.copy()
    twist = "{header: {frame_id: base_link}, twist: {linear: {z: 0.1}}}"
    with process(*publish("/teleop/twist", "geometry_msgs/msg/TwistStamped", twist)):
        listener.wait(lambda: listener.bus.call("/safety_filter/arm", SOON_S)[0])  # once it has stopped
        listener.wait(lambda: np.abs(listener.place[1:] - turned_rad[1:]).max() > 0.1)


def test_diagnostics_topic_and_hardware_id(listener: Listener) -> None:
    listener.wait(lambda: len(listener.diagnostics) > 0 and len(listener.diagnostics[-1].status) >= 2)
    told = {status.name: status.hardware_id for status in listener.diagnostics[-1].status}
    assert told == {"safety_filter": "sim_arm", "sim_robot": "sim_robot"}


def test_type_hashes_of_nodes_without_ros(listener: Listener) -> None:
    """`ros2 topic info -v` shows the same hash for the robot on DDS and the filter on rclpy."""
    said = subprocess.run(
        ros2("topic", "info", "-v", "/joint_states", "--no-daemon", "--spin-time", "5"),
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    hashes = [line.split()[-1] for line in said.splitlines() if "hash" in line]
    assert len(hashes) >= 3
    assert len(set(hashes)) == 1
    assert hashes[0].startswith("RIHS01_")
    assert "sim_robot" in said
