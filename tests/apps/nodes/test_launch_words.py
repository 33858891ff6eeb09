"""Sentences of `ros2 launch` name arguments as it takes them: `arm:=true`, not `arm=true`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from robo_rl.apps.node import main as node_main
from robo_rl.apps.nodes import ros_launch
from robo_rl.apps.nodes.log_stream import LaunchStream, LogStream
from robo_rl.apps.nodes.ros.launch_words import VARIABLE, as_launch_arguments
from robo_rl.core.errors import ConfigError
from tests.apps.nodes.fake_launch import GIVEN, describe, launch

NAMES = (
    *("ground", "camera", "camera_name", "robot", "senses", "network"),
    *("cameras", "instruction", "record", "seed", "level", "bus"),
)
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
        (  # options in the name of an environment
            "made for arm/lift:cameras=view,senses=depth,instruction=lift it",
            "made for arm/lift:cameras=view,senses=depth,instruction=lift it",
        ),
        ("record=/data/seed=1,level=2 cannot", "record:=/data/seed=1,level=2 cannot"),  # a path
    ],
)
def test_arguments_are_named_as_launch_takes_them(sentence: str, said: str) -> None:
    assert as_launch_arguments(sentence, NAMES) == said


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        (
            "Use `robo-rl call x bus=dds`, or bus=rclpy here.",
            "Use `robo-rl call x bus=dds`, or bus:=rclpy here.",
        ),
        ("Try `robo-rl run robot=a. b` and robot=c.", "Try `robo-rl run robot=a. b` and robot:=c."),
        (
            "Train with robo-rl fly level=rates. Give robot=b.",
            "Train with robo-rl fly level=rates. Give robot:=b.",
        ),
        (
            "Or robo-rl run seed=0.5 robot=... Give robot=b.",
            "Or robo-rl run seed=0.5 robot=... Give robot:=b.",
        ),
        ("Run robo-rl run robot=a; robot=b is busy.", "Run robo-rl run robot=a; robot:=b is busy."),
        (
            "Train with robo-rl fly level=rates, or give robot=b.",
            "Train with robo-rl fly level=rates, or give robot:=b.",
        ),
        (
            "Say robo-rl up arm_sim --check robot=[0.1, 0.2] bus=dds, or bus=auto.",
            "Say robo-rl up arm_sim --check robot=[0.1, 0.2] bus=dds, or bus:=auto.",
        ),
        (
            "Say robo-rl up arm_sim robot='a b' level=x or seed=2.",
            "Say robo-rl up arm_sim robot='a b' level=x or seed:=2.",
        ),
    ],
)
def test_a_command_of_robo_rl_stays_as_it_is(sentence: str, said: str) -> None:
    """Its settings have no colon. The sentences around it do."""
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


class Closed:
    """Log of a bus that is closed."""

    def log(self, sentence: str, warning: bool = False) -> bool:
        return False


def test_a_running_node_names_them_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its settings are arguments of the launch file; `robo-rl up` takes them without a colon."""
    variables = launch(describe("arm"), **GIVEN)[0].additional_env

    def said() -> str:
        assert node_main(["task", "bus=rcl"]) != 0
        print("note: give arm=true.", file=LogStream(Closed(), "task", sys.stderr, warning=True))
        return capsys.readouterr().err

    assert "bus=rcl cannot" in (plain := said())
    assert "give arm=true" in plain
    monkeypatch.setenv(VARIABLE, variables[VARIABLE])
    assert "bus:=rcl cannot" in (launched := said())
    assert "give arm:=true" in launched


def test_remarks_of_the_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ros_launch, "_check", lambda commands, context: ["no goal, or give goal=[x] here."])
    launch(describe("sim"))
    assert "launch: no goal, or give goal:=[x] here.\n" in capsys.readouterr().out


def test_prints_of_a_node_without_rclpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """They go to the terminal itself, and not through the log of a bus: in order, and none waits."""
    monkeypatch.setenv(VARIABLE, "arm,output")
    stream = io.StringIO()
    print("note: give arm=true.\n\nor output=", "forward", sep="", file=(launched := LaunchStream(stream)))
    print("\r50 %", end="", file=launched)
    launched.writelines(["\rgive arm=false, or `robo-rl run\n", "arm=\n"])
    assert stream.getvalue() == (
        "note: give arm:=true.\n\nor output:=forward\n\r50 %\rgive arm:=false, or `robo-rl run\narm:=\n"
    )


@pytest.mark.parametrize(("names", "said"), [("", "key=value"), ("key", "key:=value")])
def test_a_started_node_names_them_in_all_prints(names: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "robo_rl.apps.node"],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3]), VARIABLE: names},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said in done.stdout
