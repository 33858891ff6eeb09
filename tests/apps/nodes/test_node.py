"""`python -m robo_rl.apps.node`: one node in its own process, over DDS on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hardware.bus.dds.bus import DdsBus
from hardware.bus.in_process import InProcessWorld
from hardware.messages import JointTrajectory
from hardware.topics import SAFE, SAFETY_STATE
from robo_rl.apps import node as node_verb
from robo_rl.apps.node import main
from robo_rl.apps.nodes import builders
from robo_rl.apps.nodes.node_life import Ending
from robo_rl.apps.nodes.node_table import NODES
from robo_rl.conf.node import ActionHeadNodeConfig
from robo_rl.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def node(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A node process that is ended after the test."""
    process = subprocess.Popen(
        [sys.executable, "-m", "robo_rl.apps.node", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_filter_without_a_reader_still_brakes(domain: int) -> None:
    """After kill -9 of `robo-rl up`, prints get a broken pipe; the stop is braked and sent nevertheless."""
    with (
        closing(DdsBus("probe", domain=domain)) as bus,
        node("safety_filter", "robot=sim_arm", "bus=dds") as process,
    ):
        alive = list[float]()
        SAFETY_STATE.subscribe(bus, lambda m, at: alive.append(at))
        end_s = bus.now() + 30.0
        bus.spin(lambda: bool(alive) or bus.now() > end_s)
        assert process.stdout is not None
        process.stdout.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == 0
        process.stdout = None


@pytest.mark.parametrize(
    ("signals", "words"), [([signal.SIGTERM], "SIGTERM"), ([signal.SIGINT, signal.SIGINT], "SIGINT")]
)
def test_signal_stops_the_filter_and_prints_the_reason(
    domain: int, signals: list[signal.Signals], words: str
) -> None:
    """Armed and holding a simulated arm; after a signal, or two at once: exit code 0, the reason on the
    terminal.
    """
    heard: list[JointTrajectory] = []
    bus = DdsBus("probe", warn=lambda sentence: None)
    SAFE.subscribe(bus, lambda message, at: heard.append(message))
    with (
        node("sim_robot", "bus=dds"),
        node("safety_filter", "robot=sim_arm", "arm=true", "bus=dds") as filter_,
    ):
        end_s = time.monotonic() + 40.0
        bus.spin(lambda: len(heard) > 5 or time.monotonic() > end_s)
        assert len(heard) > 5
        for number in signals:
            filter_.send_signal(number)
        said = filter_.communicate(timeout=20.0)[0]
    bus.close()
    assert filter_.returncode == 0, said
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["safety_filtr"], "Unknown node 'safety_filtr'. Did you mean 'safety_filter'?"),
        (["safety_filter"], "python -m robo_rl.apps.node safety_filter needs robot=..."),
        (["safety_filter", "robot=ur99", "bus=dds"], "Unknown robot 'ur99'."),
        (["safety_filter", "robot=sim_arm", "bus=in_process"], "connects nodes of one process"),
        (["sim_robot", "robot=spot"], "robot=spot cannot be used"),
    ],
)
def test_mistakes_print_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], domain: int
) -> None:
    assert main([*words, "--ros-args", "-r", "__ns:=/left"]) == (3 if "bus=in_process" in words else 2)
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", sorted(NODES))
def test_help_lists_settings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert "namespace" in capsys.readouterr().out


class Begun:
    """A node and its bus in one, which record how they were ended."""

    name, at_rest = "begun", True

    def __init__(self) -> None:
        self.left: list[str] = []

    def stop(self, why: str) -> str:
        return why

    def finish(self) -> None:
        self.left.append("last word")

    def close(self) -> None:
        self.left.append("closed")


def test_signal_before_spinning_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The node is built but not spinning: it is ended in order, with a message."""
    begun = Begun()
    monkeypatch.setattr(node_verb, "start", lambda name, config: (begun, begun))
    monkeypatch.setattr(node_verb, "live", lambda nodes, ending: signal.raise_signal(signal.SIGTERM))
    assert main(["task"]) == 0
    assert begun.left == ["last word", "closed"]
    assert capsys.readouterr().out == "task: SIGTERM while it was starting: nothing was sent.\n"


def test_late_second_signal_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the end, only the signal handlers are not restored yet."""

    def lived(nodes: object, ending: Ending) -> None:
        ending.started = True
        ending.ask("SIGTERM")
        raise KeyboardInterrupt

    begun = Begun()
    monkeypatch.setattr(node_verb, "start", lambda name, config: (begun, begun))
    monkeypatch.setattr(node_verb, "live", lived)
    assert main(["task"]) == 0
    assert begun.left == []
    assert capsys.readouterr().out == ""


def test_defect_while_loading_prints_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors count as a result of a stop only if one was requested."""

    def broken(name: str, config: object) -> None:
        raise ImportError("a defect")

    monkeypatch.setattr(node_verb, "start", broken)
    with pytest.raises(ImportError, match="a defect"):
        main(["task"])


def test_missing_package_error_names_package_and_python() -> None:
    """In a ROS installation: one sentence instead of a traceback."""
    code = (
        "import sys; sys.modules['numpy'] = None; from robo_rl.apps.node import main\n"
        "sys.exit(main(['safety_filter', 'robot=sim_arm']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"The package 'numpy' is not installed for {sys.executable}" in done.stderr


@pytest.mark.parametrize("heartbeat_s", [0.001, 0.02])
def test_head_refuses_a_timeout_of_less_than_two_heartbeats(heartbeat_s: float) -> None:
    """Every policy would count as dead."""
    config = ActionHeadNodeConfig(robot="sim_arm", heartbeat_s=heartbeat_s)
    with pytest.raises(ConfigError, match=r"every 0\.01 s.*Expected 0\.025 s or more, or 0"):
        builders.action_head(config, InProcessWorld().bus("head"))
    for allowed in (None, 0.0, 0.2):
        builders.action_head(replace(config, heartbeat_s=allowed), InProcessWorld().bus("head"))
