"""Settings of nodes as ROS parameters, without ROS; the real `ros2 param` is in tests/hardware/bus."""

from __future__ import annotations

import pytest

from hardware.bus.parameters import KINDS
from robo_rl.apps.node import main
from robo_rl.apps.nodes.node_table import NODES, load_attribute, node_settings
from robo_rl.apps.nodes.ros.parameters import NO_PARAMETERS, parameters_of, with_parameters
from robo_rl.conf.fields import settings
from robo_rl.conf.node import CameraNodeConfig, FlightFilterNodeConfig, SafetyFilterNodeConfig


@pytest.mark.parametrize("node", list(NODES))
def test_every_setting_is_a_described_parameter(node: str) -> None:
    """With a type that ROS has, and the help text of `--help`."""
    schema = load_attribute(NODES[node][1])
    required = [f"{key}=x" for key, each in settings(schema).items() if each.required]
    shown = parameters_of(node_settings(node, required))
    assert {each.name for each in shown} == set(settings(schema)) - set(NO_PARAMETERS)
    assert all(each.kind in KINDS and each.description for each in shown)


def test_values_limits_and_types_are_shown() -> None:
    config = FlightFilterNodeConfig(bundle="b", ground_m=None, fence_m=[1.0, 2.0, 3.0])
    shown = {each.name: each for each in parameters_of(config)}
    assert (shown["command_hz"].value, shown["command_hz"].constraints) == (100.0, "number >= 1")
    assert (shown["ground_m"].kind, shown["ground_m"].value) == ("float", None)
    assert shown["ground_m"].constraints == "number or none"
    assert (shown["fence_m"].kind, shown["fence_m"].value) == ("list[float]", [1.0, 2.0, 3.0])
    assert shown["level"].constraints == "motors | rates"


def test_ros_values_override_and_have_the_setting_type() -> None:
    """YAML reads `source: 0` as a number and `fps: 15` as a whole one."""
    given = {"source": 0, "fps": 15, "loop": True, "calibration": "front.yaml"}
    words = with_parameters(CameraNodeConfig, ["source=pattern", "camera=front"], given, print)
    config = node_settings("camera", words)
    assert (config.source, config.fps, config.loop) == ("0", 15.0, True)
    assert (config.calibration, config.camera) == ("front.yaml", "front")
    axes = with_parameters(load_attribute(NODES["teleop"][1]), ["robot=r"], {"axes": [3, -1]}, print)
    assert node_settings("teleop", axes).axes == [3, -1]


@pytest.mark.parametrize("null", [None, "null"], ids=["in the file", "of rclpy"])
def test_dumped_parameters_can_be_loaded(null: str | None) -> None:
    """`ros2 param dump` writes null for what has no value; rclpy reads it as text."""
    flight = with_parameters(FlightFilterNodeConfig, ["bundle=b", "ground_m=1"], {"ground_m": null}, print)
    assert node_settings("flight_filter", flight).ground_m is None
    task = with_parameters(load_attribute(NODES["task"][1]), ["goal=[1]"], {"goal": null}, print)
    assert node_settings("task", task).goal == []


def test_unknown_parameter_is_reported() -> None:
    """A file may hold the parameters of several nodes, so it is no error; nor can it rename the node."""
    said: list[str] = []
    words = with_parameters(SafetyFilterNodeConfig, ["robot=r"], {"robbot": "x", "name": "y"}, said.append)
    assert words == ["robot=r"]
    assert "'robbot' is no setting of this node and has no effect. Did you mean 'robot'?" in said[0]
    assert "'name' is no setting" in said[1]


def test_parameters_without_rclpy_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """They would be ignored in silence, and the robot would run with other limits than the file says."""
    asked = ["safety_filter", "robot=sim_arm", "bus=dds", "--ros-args", "--params-file", "limits.yaml"]
    assert main(asked) != 0
    assert "'--params-file' after --ros-args, but this node runs without rclpy" in capsys.readouterr().err
