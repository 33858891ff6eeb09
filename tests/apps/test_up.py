"""`robo-rl up` and its sets of nodes."""

from __future__ import annotations

from dataclasses import fields

import pytest

from robo_rl.apps.cli import main
from robo_rl.apps.node_sets import load_set, set_names
from robo_rl.apps.up import ARGUMENTS
from robo_rl.conf.fields import settings
from robo_rl.conf.up import UpConfig
from robo_rl.core.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize("name", set_names())
def test_sets_are_whole(name: str) -> None:
    """Arguments that are used are declared, and those declared are settings of `robo-rl up`."""
    chosen = load_set(name)
    declared = {argument.name for argument in chosen.arguments}
    used = {str(v)[1:] for member in chosen.members for v in member.settings.values() if str(v).startswith("$")}
    used |= {member.when for member in chosen.members if member.when}
    assert used == declared <= set(ARGUMENTS) <= {field.name for field in fields(UpConfig)}
    assert all(argument.meaning for argument in chosen.arguments)
    assert name in settings(UpConfig)["set"].meaning


def test_who_commands_stops_before_who_filters_before_who_moves() -> None:
    """They stop in reverse order of their start; a recorder hears the stop, so it stops last."""
    for name in set_names():
        order = [member.node for member in load_set(name).members]
        chain = [["sim_robot"], ["safety_filter", "flight_filter"], ["action_head", "quad_policy"], ["arm_policy"]]
        places = [order.index(node) for step in chain for node in step if node in order]
        assert places == sorted(places)
        assert order[0] == "recorder"


def test_arguments_reach_the_nodes_that_want_them() -> None:
    commands = load_set("arm_sim").commands({"bundle": "b", "robot": "mine.yaml"})
    assert commands["safety_filter"] == ["safety_filter", "robot=mine.yaml", "arm=true"]
    assert commands["arm_policy"] == ["arm_policy", "bundle=b", "robot=mine.yaml", "start=true"]
    assert "recorder" not in commands
    assert "arm_policy" not in load_set("arm_sim").commands({})
    assert load_set("arm_sim").commands({"record": "r"})["recorder"] == ["recorder", "out=r", "start=true"]


def test_wrong_arguments_are_one_sentence() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'arm_sim'"):
        load_set("arm_simm")
    with pytest.raises(ConfigError, match=r"'quad_sim' needs bundle=\.\.\.: folder of the flight bundle"):
        load_set("quad_sim").commands({})
    with pytest.raises(ConfigError, match="'quad_sim' takes no 'robot'; it takes bundle, arm, record"):
        load_set("quad_sim").commands({"robot": "x", "bundle": "b"})


def test_the_command_line_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """The set is the first word; mistakes are one line, before anything starts."""
    assert main(["up", "arm_simm"]) == 2
    assert "Unknown set of nodes 'arm_simm'. Did you mean 'arm_sim'?" in capsys.readouterr().err
    assert main(["up", "quad_sim"]) == 2
    assert "needs bundle=" in capsys.readouterr().err
    assert main(["up"]) == 2
    assert "set" in capsys.readouterr().err
