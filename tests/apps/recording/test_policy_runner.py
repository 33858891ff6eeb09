"""The nodes of a bundle that the recording app runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.nodes.shared.own_status import OwnStatus
from hardware.topics import LOOP_STATUS, POLICY_STATUS
from policies.deploy.bundle import MANIFEST
from robo_rl.apps.recording.learning.policies import FRESH_S, NODES, PolicyRunner
from robo_rl.core.errors import CheckpointError


def test_a_policy_is_ready_when_all_its_nodes_report(tmp_path: Path) -> None:
    """On a busy computer one of them starts seconds after the other, and its services are not there yet."""
    (tmp_path / MANIFEST).write_text("{}")
    world = InProcessWorld()
    app, nodes = world.bus("record_app"), {name: world.bus(name) for name in NODES}
    topics = dict(zip(NODES, (LOOP_STATUS, POLICY_STATUS), strict=True))

    def start(name: str, words: Any) -> Any:
        return SimpleNamespace(name=name, code=None, ask_to_stop=lambda: None, end=lambda most_s: None)

    refused: list[str] = []

    def check(bundle: str) -> None:
        if bundle in refused:
            raise CheckpointError(f"The bundle {bundle} does not fit the robot.")

    runner = PolicyRunner(
        cast(Any, app), check, lambda bundle: {name: [] for name in NODES}, start, lambda *said: None
    )

    def heard(*names: str) -> str:
        """State of the policy after reports of these nodes."""
        for name in names:
            OwnStatus(cast(Any, nodes[name]), topics[name]).tell(0, "works")
        until_s = world.now() + 0.1
        app.spin(lambda: world.now() >= until_s)
        return runner.state

    app.timer(0.05, lambda: None)
    assert runner.state == "none"
    runner.load(str(tmp_path))
    assert heard("arm_policy") == "loading"
    assert heard("action_head", "arm_policy") == "ready"
    app.spin(lambda: world.now() > FRESH_S + 1.0)
    assert heard("arm_policy") == "loading"
    heard("action_head", "arm_policy")
    other = tmp_path / "other"
    other.mkdir()
    (other / MANIFEST).write_text("{}")
    refused.append(str(other))
    with pytest.raises(CheckpointError, match="does not fit"):  # no node of it is started
        runner.load(str(other))
    assert (runner.state, runner.bundle, runner.known) == ("ready", str(tmp_path), [str(tmp_path)])
    runner.load(str(tmp_path))  # again: new processes
    assert runner.state == "loading"


def test_a_killed_node_names_its_signal(tmp_path: Path) -> None:
    """Its last line was an earlier message, and no cause."""
    (tmp_path / MANIFEST).write_text("{}")
    said: list[str] = []

    def start(name: str, words: Any) -> Any:
        return SimpleNamespace(
            name=name, code=-9, last="loaded", ask_to_stop=lambda: None, end=lambda most_s: None
        )

    runner = PolicyRunner(
        cast(Any, InProcessWorld().bus("record_app")),
        lambda bundle: None,
        lambda bundle: {NODES[0]: []},
        start,
        lambda text, level: said.append(text),
    )
    runner.load(str(tmp_path))
    runner.tick()
    assert said == [f"The policy's node {NODES[0]} was killed by SIGKILL (from outside, or out of memory)"]
    assert runner.bundle == ""
