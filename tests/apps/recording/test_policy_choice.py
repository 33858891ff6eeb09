"""Bundles that an operator chooses: one that fits is started, all others are refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hardware.bus.in_process import InProcessWorld
from policies.deploy import bundle
from policies.saved_files import WEIGHTS_FILE
from robo_rl.apps.recording import build
from robo_rl.apps.recording.learning import child
from robo_rl.apps.recording.learning.autonomy import Autonomy
from robo_rl.conf.record import RecordAppNodeConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from tests.hardware.arm_descriptions import arm
from tests.hardware.bundles import arm_bundle, quad_bundle


class StartedChild:
    """A process that is only noted."""

    code = None

    def __init__(self, name: str, argv: Any, log: Any, nice: bool = False) -> None:
        self.name, self.argv = name, list(argv)

    def ask_to_stop(self) -> None:
        """Do nothing."""

    def end(self, most_s: float) -> None:
        """Do nothing."""


def test_the_app_starts_nodes_for_a_bundle_that_fits_its_arm_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle of another robot, a damaged one and an unreadable one are each refused in one sentence. The
    nodes of the present policy go on.
    """
    started: list[StartedChild] = []

    def start(*given: Any, **more: Any) -> StartedChild:
        started.append(StartedChild(*given, **more))
        return started[-1]

    monkeypatch.setattr(child, "Child", start)
    monkeypatch.chdir(tmp_path)
    fits, damaged = arm_bundle(tmp_path / "fits").folder, arm_bundle(tmp_path / "damaged").folder
    other = quad_bundle(tmp_path / "other").folder
    (damaged / WEIGHTS_FILE).write_bytes(b"half of it")
    node = SimpleNamespace(notices=SimpleNamespace(tell=lambda *said: None))
    config, bus = RecordAppNodeConfig(out="data"), InProcessWorld().bus("record_app")
    autonomy = build._autonomy(config, arm(), bus, cast(Any, node), caller=None)
    assert isinstance(autonomy, Autonomy)
    runner = autonomy.runner
    # hundreds of megabytes would hold up the arm's commands, which are sent from the same loop
    monkeypatch.setattr(bundle, "sha256_of", lambda path: pytest.fail(f"{path} is read in the app's loop"))
    runner.load(str(fits))
    assert [each.name for each in started] == ["action_head", "arm_policy"]
    assert all(f"bundle={fits}" in each.argv for each in started)
    for folder, says in (
        (other, "does not fit the robot .* fly a quadcopter"),
        (damaged, "copy the bundle again"),
    ):
        with pytest.raises(CheckpointError, match=says):
            runner.load(str(folder))
    with pytest.raises(ConfigError, match=r"cannot be read|is no bundle"):  # a name that no file system has
        runner.load("x" * 300)
    assert (runner.state, runner.bundle, len(started)) == ("loading", str(fits), 2)
