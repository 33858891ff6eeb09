"""Sentences of `ros2 launch` name arguments as it takes them: `arm:=true`, not `arm=true`."""

from __future__ import annotations

import pytest

from robo_rl.apps.nodes import ros_launch
from robo_rl.apps.nodes.ros_launch import as_launch_arguments
from robo_rl.core.errors import ConfigError
from tests.apps.nodes.fake_launch import GIVEN, describe, launch

NAMES = ("ground", "camera", "camera_name", "robot", "senses", "network")
pytestmark = pytest.mark.usefixtures("fake_ros")


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("Give ground=, such as ground=-0.6.", "Give ground:=, such as ground:=-0.6."),
        ("camera=0+2 camera_name=a+b", "camera:=0+2 camera_name:=a+b"),
        ("network=lan, ROBO_RL_INTERFACE=eth0", "network:=lan, ROBO_RL_INTERFACE=eth0"),
        ("train with env=...:senses=depth.", "train with env=...:senses=depth."),  # an option of a task
        ("Another `robo-rl up` runs: network=lan.", "Another `robo-rl up` runs: network:=lan."),
        ("robot=a: robo-rl data import ... robot=b", "robot:=a: robo-rl data import ... robot=b"),
    ],
)
def test_arguments_are_named_as_launch_takes_them(sentence: str, said: str) -> None:
    assert as_launch_arguments(sentence, NAMES) == said


@pytest.mark.parametrize(
    ("file", "given", "said"),
    [
        ("sim", {"remote": "gpu-box:5757"}, "remote:=gpu-box:5757 has no effect without bundle:=..., as"),
        ("arm", GIVEN | {"camera": "0+2"}, "camera:=0+2: the description has no cameras. Say which"),
        ("arm", GIVEN | {"camera": "0", "camera_name": "a+a"}, "camera_name:=a+a names a camera twice."),
    ],
)
def test_refused_arguments(file: str, given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        launch(describe(file), **given)
    assert str(raised.value).startswith(said)


def test_remarks_of_the_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ros_launch, "_check", lambda commands, context: ["no goal, or give goal=[x] here."])
    launch(describe("sim"))
    assert "launch: no goal, or give goal:=[x] here.\n" in capsys.readouterr().out
