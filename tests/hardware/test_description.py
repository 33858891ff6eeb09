"""Descriptions of robots: what cannot be is refused with the key and what to do."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.description import list_robots, load_description
from hardware.kinematics import forward_kinematics
from robo_rl.core.errors import ConfigError, UnknownNameError
from tests.hardware.arms import arm


def test_shipped_robots_can_be_loaded() -> None:
    assert "sim_arm" in list_robots()
    for name in list_robots():
        assert load_description(name).name == name


def test_json_works_too(tmp_path: Path) -> None:
    joints = [{"name": "j", "low_rad": -1, "high_rad": 1, "velocity_rad_s": 1, "acceleration_rad_s2": 5}]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": "mine", "command_hz": 100, "state_hz": 500, "joints": joints}))
    robot = load_description(str(path))
    assert robot.step_rad == pytest.approx([0.1])  # 0.1 s at full velocity


JOINT = {"name": "a", "low_rad": -1.0, "high_rad": 1.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"joints": []}, "needs joints with names of their own"),
        ({"joints": [JOINT, JOINT]}, "needs joints with names of their own"),
        ({"joints": [JOINT | {"low_rad": 1.0}]}, "needs finite low_rad < high_rad"),
        ({"joints": [JOINT | {"high_rad": math.inf}]}, "needs finite low_rad < high_rad"),
        ({"joints": [JOINT | {"velocity_rad_s": 0}]}, "velocity_rad_s = 0.0 of 'small.a'"),
        ({"joints": [JOINT | {"acceleration_rad_s2": math.nan}]}, "acceleration_rad_s2 = nan"),
        ({"joints": [JOINT | {"speed": 1}]}, "a joint has no 'speed'"),
        ({"joints": [{"name": "a"}]}, "does not describe a robot"),
        ({"joints": ["a"]}, "a joint has no 'a'"),
        ({"command_hz": -1}, "command_hz = -1.0"),
        ({"colour": "red"}, "a robot has no 'colour'"),
        ({"workspace": {"low_m": [0, 0, 0], "high_m": [1, 0, 1]}}, "is empty"),
        ({"workspace": {"low_m": [0, 0], "high_m": [1, 1]}}, "does not describe a robot"),
        ({"joints": [JOINT], "workspace": {"low_m": [0, 0, 0], "high_m": [1, 1, 1]}}, "needs axis and offset_m"),
        ({"cameras": {"top": {"width_px": 0, "height_px": 1, "rate_hz": 30}}}, "width_px = 0"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        arm(**changes)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown robot 'sim_arn'\. Did you mean 'sim_arm'"):
        load_description("sim_arn")
    for name, text, words in (
        ("a.yaml", "[1", "is not YAML"),
        ("a.json", "{", "is not JSON"),
        ("b.yaml", "3", "holds int"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=words):
            load_description(str(tmp_path / name))


def test_kinematics_by_hand() -> None:
    """Two links of 0.4 m upwards; bent by 90 degrees at the second joint, the tool is 0.4 m in front."""
    forward = forward_kinematics(arm())
    np.testing.assert_allclose(forward(np.zeros(3))[-1], [0.0, 0.0, 0.8], atol=1e-12)
    np.testing.assert_allclose(forward(np.array([0.0, 0.0, np.pi / 2]))[-1], [0.4, 0.0, 0.4], atol=1e-12)
    np.testing.assert_allclose(forward(np.array([np.pi / 2, np.pi / 2, 0.0]))[-1], [0.0, 0.8, 0.0], atol=1e-12)
