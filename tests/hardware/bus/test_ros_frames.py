"""With the real robot_state_publisher: frames on tf from the URDF of a launch file.

Skipped where no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash && python3 -m pytest -m ros
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy import ndarray

pytest.importorskip("ros2cli", reason="no ROS 2 is sourced here: ros2cli is missing")
pytest.importorskip("tf2_msgs", reason="the ROS package tf2_msgs is not installed")

from hardware.description import load_description
from hardware.kinematics import forward_kinematics
from robo_rl.core.shapes import Float
from tests.hardware.bus.test_ros_cli import ROOT, ros2
from tests.hardware.bus.test_ros_parameters import running

pytestmark = pytest.mark.ros
URDF = ROOT / "examples" / "ros2_control" / "sim_arm.urdf"
ROBOT = load_description("sim_arm")
SOON_S = 30.0
Frames = dict[str, tuple[str, Float[ndarray, "4 4"], float]]  # child -> parent, transform, stamp [s]


class Listener:
    """A node of rclpy that keeps the newest transforms of one namespace, and positions by their stamps."""

    def __init__(self, namespace: str) -> None:
        import rclpy
        from rclpy.qos import DurabilityPolicy, QoSProfile
        from sensor_msgs.msg import JointState
        from tf2_msgs.msg import TFMessage

        self._context, self.frames, self.states = rclpy.Context(), Frames(), dict[float, Any]()
        self._context.init()
        self._node = rclpy.create_node("listener", context=self._context, namespace=namespace)
        latched = QoSProfile(depth=9, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._node.create_subscription(TFMessage, "tf", self._on_tf, 9)
        self._node.create_subscription(TFMessage, "tf_static", self._on_tf, latched)
        self._node.create_subscription(JointState, "joint_states", self._on_state, 9)
        self._executor = rclpy.executors.SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)

    def _on_tf(self, message: Any) -> None:
        for each in message.transforms:
            place, turn = each.transform.translation, each.transform.rotation
            matrix = np.eye(4)
            matrix[:3, :3] = rotation(np.array([turn.w, turn.x, turn.y, turn.z]))
            matrix[:3, 3] = place.x, place.y, place.z
            self.frames[each.child_frame_id] = (each.header.frame_id, matrix, seconds(each.header.stamp))

    def _on_state(self, message: Any) -> None:
        self.states[seconds(message.header.stamp)] = dict(zip(message.name, message.position, strict=True))

    def tool(self) -> tuple[str, Float[ndarray, " 3"]]:
        """Root frame, and place of tool0 in it [m]."""
        frame, place = "tool0", np.eye(4)
        while frame in self.frames:
            parent, matrix, _ = self.frames[frame]
            frame, place = parent, matrix @ place
        return frame, place[:3, 3]

    def wait(self, true: Callable[[], bool], seconds: float = SOON_S) -> bool:
        late_s = time.monotonic() + seconds
        while not true() and time.monotonic() < late_s:
            self._executor.spin_once(timeout_sec=0.1)
        return true()

    def close(self) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.shutdown()


def seconds(stamp: Any) -> float:
    return float(stamp.sec + 1e-9 * stamp.nanosec)


def rotation(wxyz: Float[ndarray, " 4"]) -> Float[ndarray, "3 3"]:
    w, x, y, z = wxyz
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    turned: Float[ndarray, "3 3"] = np.eye(3) + 2.0 * w * skew + 2.0 * skew @ skew
    return turned


@pytest.fixture(autouse=True)
def installed() -> None:
    packages = pytest.importorskip("ament_index_python.packages")
    if "robot_state_publisher" not in packages.get_packages_with_prefixes():
        pytest.skip("the ROS package robot_state_publisher is not installed")


@pytest.mark.parametrize("namespace", ["", "left"])
def test_frames_of_a_launched_arm_match_its_kinematics(domain: int, tmp_path: Path, namespace: str) -> None:
    """tool0 in base_link is where forward kinematics has it; in a namespace, nothing is on /tf."""
    words = [f"urdf:={URDF}", *([f"namespace:={namespace}"] if namespace else [])]
    launch = ros2("launch", str(ROOT / "launch" / "sim.launch.py"), *words)
    with running(*launch, log=tmp_path / "a.log"):
        own, top = Listener(namespace), Listener("")
        try:
            links = len(ROBOT.names) + 1
            assert own.wait(lambda: len(own.frames) == links), (tmp_path / "a.log").read_text()
            assert own.wait(lambda: own.frames["flange_link"][2] in own.states)
            position = own.states[own.frames["flange_link"][2]]
            root, place_m = own.tool()
            expected_m = forward_kinematics(ROBOT)(np.array([position[name] for name in ROBOT.names]))[-1]
            assert root == ROBOT.frame_id
            np.testing.assert_allclose(place_m, expected_m, atol=1e-6)
            assert top.wait(lambda: bool(top.frames), 1.0) is not bool(namespace)
        finally:
            own.close()
            top.close()
