"""Consistency of the files of examples/ros2_control with the robot's description and the driver's checks."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from hardware.arms.controller_check import controller_facts
from hardware.description import RobotDescription, load_description

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "ros2_control"
ROBOT: RobotDescription = load_description("sim_arm")
CONTROLLERS: dict[str, Any] = yaml.safe_load((FOLDER / "controllers.yaml").read_text())
URDF = ElementTree.parse(FOLDER / "sim_arm.urdf").getroot()


def vector(element: Any, key: str) -> tuple[float, ...]:
    return tuple(map(float, element.get(key).split()))


def test_urdf_matches_the_description() -> None:
    """Joints, places, axes and limits agree; the base link is the frame of joint_states."""
    joints = [joint for joint in URDF.findall("joint") if joint.get("type") == "revolute"]
    assert [joint.get("name") for joint in joints] == list(ROBOT.names)
    for joint, known in zip(joints, ROBOT.joints, strict=True):
        limit: Any = joint.find("limit")
        assert vector(joint.find("origin"), "xyz") == known.offset_m
        assert vector(joint.find("axis"), "xyz") == known.axis
        assert [float(limit.get(key)) for key in ("lower", "upper", "velocity")] == [
            known.low_rad,
            known.high_rad,
            known.velocity_rad_s,
        ]
    assert joints[0].find("parent").get("link") == ROBOT.frame_id  # type: ignore[union-attr]
    (tool,) = (joint for joint in URDF.findall("joint") if joint.get("name") == "tool")
    assert vector(tool.find("origin"), "xyz") == ROBOT.tool_m


def test_urdf_is_a_tree() -> None:
    """Each link has a name of its own, and one parent; urdfdom refuses the file otherwise."""
    links = [link.get("name") for link in URDF.findall("link")]
    children = [joint.find("child").get("link") for joint in URDF.findall("joint")]  # type: ignore[union-attr]
    parents = [joint.find("parent").get("link") for joint in URDF.findall("joint")]  # type: ignore[union-attr]
    assert len(set(links)) == len(links)
    assert sorted(children) == sorted(set(links) - {ROBOT.frame_id})
    assert set(parents) <= set(links)


def test_mock_hardware_has_the_interfaces_of_the_controllers() -> None:
    control: Any = URDF.find("ros2_control")
    assert control.find("hardware/plugin").text == "mock_components/GenericSystem"
    wanted = CONTROLLERS["joint_trajectory_controller"]["ros__parameters"]
    for joint in control.findall("joint"):
        assert [each.get("name") for each in joint.findall("command_interface")] == wanted[
            "command_interfaces"
        ]
        assert [each.get("name") for each in joint.findall("state_interface")] == wanted["state_interfaces"]
    assert [joint.get("name") for joint in control.findall("joint")] == list(ROBOT.names)


@pytest.mark.parametrize(
    ("name", "output"),
    [("joint_trajectory_controller", "trajectory"), ("forward_position_controller", "forward")],
)
def test_driver_accepts_the_controllers_without_advice(name: str, output: str) -> None:
    kind = CONTROLLERS["controller_manager"]["ros__parameters"][name]["type"]
    facts = controller_facts(name, kind, CONTROLLERS[name]["ros__parameters"], ROBOT.names, "auto")
    assert facts.output == output
    assert not facts.advice
    assert facts.joins is (output == "trajectory")


def test_readme_names_existing_files() -> None:
    page = (FOLDER / "README.md").read_text()
    assert all(
        f"`{path.name}`" in page for path in FOLDER.iterdir() if path.name not in ("README.md", "__pycache__")
    )


@pytest.mark.ros
def test_launch_file_loads_in_ros() -> None:
    """`ros2 launch --show-args`; this needs no controller manager."""
    pytest.importorskip("ros2launch", reason="no ROS 2 is sourced here: ros2launch is missing")
    words = [
        sys.executable,
        str(shutil.which("ros2")),
        "launch",
        str(FOLDER / "bringup.launch.py"),
        "--show-args",
    ]
    said = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    assert "'controller':" in said.stdout
