"""Descriptions of robots: invalid ones are refused with the key and a remedy."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.description import list_robots, load_description, parse_description
from hardware.description_table import key_rows
from hardware.kinematics import forward_kinematics
from robo_rl.core.errors import ConfigError, UnknownNameError
from tests.hardware.arm_descriptions import arm


def test_shipped_robots_can_be_loaded() -> None:
    assert "sim_arm" in list_robots()
    for name in list_robots():
        assert load_description(name).name == name


def test_json_description_is_read(tmp_path: Path) -> None:
    joints = [{"name": "j", "low_rad": -1, "high_rad": 1, "velocity_rad_s": 1, "acceleration_rad_s2": 5}]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": "mine", "command_hz": 100, "state_hz": 500, "joints": joints}))
    robot = load_description(str(path))
    assert robot.step_rad == pytest.approx([0.1])  # 0.1 s at full velocity


JOINT = {"name": "a", "low_rad": -1.0, "high_rad": 1.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"joints": []}, "needs joints with different names"),
        ({"joints": [JOINT, JOINT]}, "needs joints with different names"),
        ({"joints": [JOINT | {"low_rad": 1.0}]}, "needs finite low_rad < high_rad"),
        ({"joints": [JOINT | {"high_rad": math.inf}]}, "needs finite low_rad < high_rad"),
        ({"joints": [JOINT | {"velocity_rad_s": 0}]}, "velocity_rad_s = 0.0 of 'small.a'"),
        ({"joints": [JOINT | {"acceleration_rad_s2": math.nan}]}, "acceleration_rad_s2 = nan"),
        ({"joints": [JOINT | {"speed": 1}]}, r"joints\[0\] has an unknown key 'speed'"),
        (
            {"joints": [{"name": "a"}]},
            r"joints\[0\] lacks low_rad, high_rad, velocity_rad_s, acceleration_rad_s2",
        ),
        ({"joints": ["a"]}, r"small: joints\[0\] must hold 'key: value' lines, found 'a' \(text\)"),
        ({"joints": {"a": JOINT}}, r"small: joints must be a list, found .*\(keys\)"),
        ({"joints": None}, "a robot lacks joints"),
        ({"joints": [JOINT | {"name": None}]}, r"joints\[0\] lacks name"),
        (
            {"joints": [JOINT, JOINT | {"name": "b", "low_rad": "low"}]},
            r"joints\[1\] 'b': low_rad must be a number",
        ),
        (
            {"joints": [JOINT | {"high_rad": True}]},
            r"'a': high_rad must be a number, found True \(true or false\)",
        ),
        ({"joints": [JOINT | {"axis": "z"}]}, r"'a': axis must be three numbers \[x, y, z\], found 'z'"),
        ({"joints": [JOINT | {"axis": [0, 0, "up"]}]}, "'a': axis must be a number, found 'up'"),
        (
            {"joints": [JOINT | {"velocity": 1}]},
            "has an unknown key 'velocity'. Did you mean 'velocity_rad_s'",
        ),
        ({"state_publishers": 99}, "state_publishers = 99 of 'small': expected 1 to 4"),
        ({"command_hz": "fast"}, r"small: command_hz must be a number, found 'fast' \(text\)"),
        ({"command_hz": [50]}, r"command_hz must be a number, found \[50\] \(a list\)"),
        ({"start_jump_rad": {}}, r"start_jump_rad must be a number, found \{\} \(keys\)"),
        ({"tool_m": 0.1}, r"tool_m must be three numbers \[x, y, z\], found 0.1"),
        ({"name": [1]}, "small: name must be text"),
        ({"cameras": ["top"]}, "small: cameras must hold 'key: value' lines"),
        ({"cameras": {"top": 30}}, "camera 'top' must hold 'key: value' lines, found 30"),
        ({"cameras": {"top": {"width_px": 64, "height_px": 64}}}, "camera 'top' lacks rate_hz"),
        (
            {"cameras": {"top": {"width_px": 6.5, "height_px": 1, "rate_hz": 30}}},
            "'top': width_px must be a whole",
        ),
        ({"workspace": [0, 1]}, "small: workspace must hold"),
        ({"workspace": {"low_m": [0, 0, 0]}}, "workspace lacks high_m"),
        ({"command_hz": -1}, "command_hz = -1.0"),
        ({"colour": "red"}, "a robot has an unknown key 'colour'"),
        ({"workspace": {"low_m": [0, 0, 0], "high_m": [1, 0, 1]}}, "is empty"),
        ({"workspace": {"low_m": [0, 0], "high_m": [1, 1]}}, "workspace: low_m must be three numbers"),
        (
            {"joints": [JOINT], "workspace": {"low_m": [0, 0, 0], "high_m": [1, 1, 1]}},
            "needs axis and offset_m",
        ),
        ({"cameras": {"top": {"width_px": 0, "height_px": 1, "rate_hz": 30}}}, "width_px = 0"),
        ({"start_jump_rad": 17.0}, r"start_jump_rad = 17 .* at most 3\.142\. Angles are in radians"),
        ({"start_jump_rad": math.inf}, "start_jump_rad = inf"),
        ({"joints": [JOINT | {"step_rad": 1e9}]}, "step_rad 1e\\+09; expected at most its range, 2"),
        ({"joints": [JOINT | {"step_rad": math.nan}]}, "step_rad = nan"),
        (
            {"joints": [JOINT | {"axis": [0, 0, 0]}]},
            r"axis of 'a' .* is \[0\.0, 0\.0, 0\.0\]; give a direction",
        ),
        ({"joints": [JOINT | {"axis": [0, 0, 1e-200]}]}, "give a direction"),
        ({"joints": [JOINT | {"axis": [math.nan, 0, 1]}]}, "give a direction"),
        ({"joints": [JOINT | {"axis": [math.inf, 0, 1]}]}, "give a direction"),
        ({"joints": [JOINT | {"offset_m": [0, math.nan, 0]}]}, "offset_m of 'a' .* must be finite"),
        ({"tool_m": [0, 0, math.inf]}, "tool_m of 'small' must be finite"),
        ({"tool_m": [0, 0, 103.0]}, r"tool_m of 'small' is .* divide millimetres by 1000"),
        ({"joints": [JOINT | {"offset_m": [0, -425, 0]}]}, "offset_m of 'a' .* divide millimetres by 1000"),
        (
            {"workspace": {"low_m": [-600, -600, 0], "high_m": [600, 600, 900]}},
            r"low_m of the workspace of 'small' is \[-600\.0, -600\.0, 0\.0\]; .* divide millimetres by 1000",
        ),
    ],
)
def test_invalid_descriptions_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        arm(**changes)


def test_exponents_without_a_dot_are_numbers(tmp_path: Path) -> None:
    """YAML 1.1 reads 1e-3 as text."""
    path = tmp_path / "mine.yaml"
    joint = "{name: 1, low_rad: -1, high_rad: 1, velocity_rad_s: 1, acceleration_rad_s2: 5, step_rad: 1e-1}"
    path.write_text(f"name: mine\ncommand_hz: 5e1\nstate_hz: 100\nstart_jump_rad:\njoints: [{joint}]\n")
    robot = load_description(str(path))
    assert (robot.command_hz, robot.names, robot.step_rad.tolist()) == (50.0, ("1",), [0.1])
    assert robot.start_jump_rad == 0.3  # an empty value is none: the default


def test_unusable_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown robot 'sim_arn'\. Did you mean 'sim_arm'"):
        load_description("sim_arn")
    with pytest.raises(
        ConfigError, match=r"description nofile\.yaml does not exist \(looked in .*included robots: sim_arm"
    ):
        load_description("nofile.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.yaml cannot be read as a robot's description"):
        load_description(str(tmp_path / "binary.yaml"))
    for name, text, words in (
        ("a.yaml", "[1", "is not YAML"),
        ("a.json", "{", "is not JSON"),
        ("b.yaml", "3", "holds int"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=words):
            load_description(str(tmp_path / name))


def test_kinematics_match_hand_computation() -> None:
    """Two links of 0.4 m upwards; with the second joint at 90 degrees, the tool is 0.4 m in front."""
    forward = forward_kinematics(arm())
    np.testing.assert_allclose(forward(np.zeros(3))[-1], [0.0, 0.0, 0.8], atol=1e-12)
    np.testing.assert_allclose(forward(np.array([0.0, 0.0, np.pi / 2]))[-1], [0.4, 0.0, 0.4], atol=1e-12)
    np.testing.assert_allclose(
        forward(np.array([np.pi / 2, np.pi / 2, 0.0]))[-1], [0.0, 0.8, 0.0], atol=1e-12
    )


def test_key_table_of_the_docs_matches_the_code() -> None:
    """To update it: put the output of `python -m hardware.description_table` between the markers."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "robot.md").read_text()
    found = re.search(r"<!-- keys: begin -->\n\n(.*?)\n\n<!-- keys: end -->", page, flags=re.DOTALL)
    assert found is not None
    assert found[1].splitlines() == key_rows()


def test_docs_mark_the_required_keys(tmp_path: Path) -> None:
    """A description with only the required keys is valid; without one of them the error names it."""
    required = [row.split("`")[1] for row in key_rows() if "**required**" in row]
    body = {key: {"name": "mine", "joints": [JOINT]}.get(key, 50) for key in required if "." not in key}
    assert {f"joints[].{key}" for key in JOINT} == {key for key in required if key.startswith("joints[]")}
    assert parse_description(body, "mine").name == "mine"
    for key in body:
        with pytest.raises(ConfigError, match=f"a robot lacks {key}"):
            parse_description({name: value for name, value in body.items() if name != key}, "mine")
    for key in JOINT:
        joint = {name: value for name, value in JOINT.items() if name != key}
        with pytest.raises(ConfigError, match=rf"joints\[0\] lacks {key}"):
            parse_description(body | {"joints": [joint]}, "mine")


@pytest.mark.parametrize(
    ("key", "value"),
    [("low_rad", -180.0), ("high_rad", 180.0), ("velocity_rad_s", 1e9), ("acceleration_rad_s2", 1e5)],
)
def test_implausible_numbers_are_refused(key: str, value: float) -> None:
    """Limits in degrees would be enforced as radians, that is, not at all."""
    joint = {"name": "a", "low_rad": -1.0, "high_rad": 1.0, "velocity_rad_s": 1.0, "acceleration_rad_s2": 5.0}
    with pytest.raises(ConfigError, match=rf"'a' of 'mine' has {key} .*Angles are in radians"):
        parse_description(
            {"name": "mine", "command_hz": 50, "state_hz": 100, "joints": [joint | {key: value}]}, "mine.yaml"
        )
