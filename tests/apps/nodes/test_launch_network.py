"""Bus and network of nodes that `ros2 launch` starts: this machine alone, unless the user says otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from robo_rl.apps.nodes import ros_launch
from robo_rl.apps.nodes.ros.launch_words import VARIABLE
from robo_rl.apps.nodes.ros.network import CHOSEN
from robo_rl.core.errors import ConfigError
from tests.apps.nodes.fake_launch import GIVEN, LAUNCH, describe, launch

pytestmark = pytest.mark.usefixtures("fake_ros", "unset")


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has chosen no network."""
    for name in CHOSEN:
        monkeypatch.delenv(name, raising=False)


def network(node: Any) -> dict[str, str]:
    """Environment variables of a node, without the one that names the arguments."""
    return {name: value for name, value in node.additional_env.items() if name != VARIABLE}


def test_nodes_discover_this_machine_alone_by_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line names the argument for a robot whose other nodes are on another machine."""
    local = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    assert network(launch(describe("arm"), **GIVEN)[0]) == local
    assert "(ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST)" in (told := capsys.readouterr().out)
    assert "network:=lan" in told
    assert not any(map(network, launch(describe("sim"), namespace="b", network="lan")))
    assert not capsys.readouterr().out
    monkeypatch.setenv("ROS_DISTRO", "humble")
    assert network(launch(describe("sim"), namespace="c")[0]) == {"ROS_LOCALHOST_ONLY": "1"}


@pytest.mark.parametrize("name", CHOSEN)
def test_network_that_the_user_has_chosen_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "x")
    assert not network(launch(describe("sim"))[0])


def test_nodes_without_rclpy_take_the_name_of_an_interface() -> None:
    assert not network(launch(describe("sim"), bus="dds")[0])
    with pytest.raises(ConfigError, match="ROBO_RL_INTERFACE=eth0"):
        launch(describe("sim"), namespace="b", bus="dds", network="lan")


def test_auto_with_rclpy_gives_parameters_of_ros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Python of the nodes decides for all of them."""
    rclpy = tmp_path / "rclpy.py"
    rclpy.touch()
    monkeypatch.setattr(ros_launch, "PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(LAUNCH.parent)]))
    nodes = launch(describe("sim"), bus="auto", use_sim_time="true")
    assert "launch: bus:=auto: the nodes run with bus:=rclpy.\n" in capsys.readouterr().out
    assert all("bus=rclpy" in node.arguments for node in nodes)
    assert all(node.parameters[0]["use_sim_time"] for node in nodes)
    rclpy.write_text("import _rclpy_of_another_python")  # a sourced ROS is found, and built for one Python
    launch(describe("sim"), bus="auto", namespace="left")
    assert "launch: bus:=auto: the nodes run with bus:=dds.\n" in capsys.readouterr().out


def test_auto_without_rclpy_is_dds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rclpy `--ros-args` is not read: the namespace is a setting, and parameters are refused."""
    monkeypatch.setattr(ros_launch, "_lines_of", lambda context, module: ["dds"])
    nodes = launch(describe("sim"), bus="auto", namespace="left")
    assert all(node.arguments[-2:] == ["bus=dds", "namespace=left"] for node in nodes)
    with pytest.raises(ConfigError, match="use_sim_time:=true needs bus:=rclpy: nodes with bus:=dds"):
        launch(describe("sim"), bus="auto", namespace="right", use_sim_time="true")
