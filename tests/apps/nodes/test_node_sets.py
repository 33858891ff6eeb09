"""Sets of nodes: their arguments reach the nodes, and they stop in a safe order."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from robo_rl.apps.nodes.node_sets import load_set, set_names
from robo_rl.apps.nodes.node_table import NODES, node_settings
from robo_rl.apps.nodes.preflight import check
from robo_rl.apps.up import ARGUMENTS
from robo_rl.conf.fields import settings
from robo_rl.conf.up import UpConfig
from robo_rl.core.errors import ConfigError, UnknownNameError


def test_settings_of_a_device_are_no_drivers(tmp_path: Path) -> None:
    """`device_settings=` names a file without the key driver."""
    (tmp_path / "pad.yaml").write_text("mode: tool\n")
    words = {"device": "gamepad", "device_settings": str(tmp_path / "pad.yaml")}
    commands = load_set("arm_sim").commands(words)
    assert f"settings={tmp_path / 'pad.yaml'}" in commands["teleop"]
    assert check(commands) == []


@pytest.mark.parametrize("name", set_names())
def test_sets_declare_all_arguments(name: str) -> None:
    """Every used argument is declared, and every declared one is a setting of `robo-rl up`."""
    chosen = load_set(name)
    declared = {argument.name for argument in chosen.arguments}
    used = {
        str(v)[1:] for member in chosen.members for v in member.settings.values() if str(v).startswith("$")
    }
    conditions = [word for member in chosen.members for word in (member.when, member.each) if word]
    used |= {name for word in conditions for name in word.split("|")}
    assert used == declared <= set(ARGUMENTS) <= {field.name for field in fields(UpConfig)}
    assert all(argument.meaning for argument in chosen.arguments)
    assert name in settings(UpConfig)["set"].meaning


def test_stop_order_is_commands_filter_robot() -> None:
    """They stop in reverse order of their start; a recorder records the stop, so it stops last."""
    for name in set_names():
        order = [member.node for member in load_set(name).members]
        chain = [
            ["sim_robot", "robot_driver", "controller_driver"],
            ["safety_filter", "flight_filter"],
            ["action_head", "quad_policy"],
            ["arm_policy"],
        ]
        places = [order.index(node) for step in chain for node in step if node in order]
        assert places == sorted(places)
        assert order[0] == "recorder"


def test_arguments_reach_their_nodes() -> None:
    commands = load_set("arm_sim").commands({"bundle": "b", "robot": "mine.yaml"})
    assert commands["safety_filter"] == ["safety_filter", "robot=mine.yaml", "arm=true"]
    assert commands["arm_policy"] == [
        "arm_policy",
        "bundle=b",
        "robot=mine.yaml",
        "start=true",
        "realtime=false",
        "remote=",
    ]
    assert "recorder" not in commands
    assert "arm_policy" not in load_set("arm_sim").commands({})
    for name in ("arm_sim", "teleop"):
        led = load_set(name).commands({"robot": "ur5e", "device": "leader", "leader": "so100.yaml"})
        assert led["teleop"] == ["teleop", "robot=ur5e", "device=leader", "settings=", "leader=so100.yaml"]
    seen = load_set("arm_sim").commands({"record": "r", "cameras": "view"})["recorder"]
    assert seen == ["recorder", "out=r", "start=true", "cameras=view", "depth=true"]


@pytest.mark.parametrize(("name", "robot"), [("arm_sim", {}), ("teleop", {"robot": "ur5e"})])
def test_recording_starts_on_request(name: str, robot: dict[str, str]) -> None:
    """The hint on arming is printed when nodes are ready; it is left out if another program drives."""
    for device, start in (("keyboard", "start=false"), ("", "start=true")):
        assert start in load_set(name).commands({"record": "r", "device": device} | robot)["recorder"]


def test_wrong_arguments_print_one_sentence() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'arm_sim'"):
        load_set("arm_simm")
    with pytest.raises(ConfigError, match=r"'quad_sim' needs bundle=\.\.\.: folder of the flight bundle"):
        load_set("quad_sim").commands({})
    with pytest.raises(
        ConfigError, match="'quad_sim' takes no 'robot'; it takes bundle, level, scene, instruction, "
    ):
        load_set("quad_sim").commands({"robot": "x", "bundle": "b"})


@pytest.mark.parametrize("name", set_names())
def test_nodes_accept_the_settings_of_their_sets(name: str) -> None:
    """Nodes exist and have these settings: a typo would otherwise show only when the robot is started."""
    for member in load_set(name).members:
        module, attribute = NODES[member.node][1].split(":")
        schema = getattr(import_module(module), attribute)
        assert set(member.settings) <= set(settings(schema)), member
        required = {key for key, setting in settings(schema).items() if setting.required}
        assert required <= set(member.settings), member


def test_an_instruction_alone_starts_the_task_node() -> None:
    """Without a goal, which an empty word leaves out; and cameras of a quadcopter need no description."""
    commands = load_set("arm").commands({"bundle": "b", "robot": "ur5e", "instruction": "close the drawer"})
    task = node_settings("task", commands["task"][1:])
    assert (task.goal, task.words) == ([], "close the drawer")
    assert "task" not in load_set("arm").commands({"bundle": "b", "robot": "ur5e"})
    flown = load_set("quad").commands({"bundle": "b", "camera": "0", "camera_name": "front"})
    assert flown["camera"] == ["camera", "source=0", "camera=front", "transport=raw"]
    assert "camera" not in load_set("quad").commands({"bundle": "b"})


@pytest.mark.parametrize(
    ("name", "given", "needs"),
    [
        ("arm_sim", {"remote": "gpu-box:5757"}, "bundle"),
        ("arm_sim", {"heartbeat_s": "0.2"}, "bundle"),
        ("arm_sim", {"device_settings": "d.yaml"}, "device"),
        ("teleop", {"robot": "sim_arm", "output": "forward"}, "controller"),
    ],
)
def test_arguments_without_effect_are_refused(name: str, given: dict[str, str], needs: str) -> None:
    """Without the bundle, remote= would start an arm that nothing commands."""
    said = f"={list(given.values())[-1]} has no effect without {needs}=..., as the node"
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_set(name).commands(given)
    assert load_set(name).commands(given | {needs: "x"})
