"""An actor in its own process has what the learner's process has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from robo_rl.core.errors import EnvError
from robo_rl.rl.scale.actor import ActorParts, Failure, RolloutActor


def test_an_actor_imports_the_user_s_modules_before_it_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ROBO_RL_PLUGINS registers environments, which the actor makes by their names."""
    (tmp_path / "actor_plugin.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("ROBO_RL_PLUGINS", "actor_plugin")

    def build(slot: int, incarnation: int) -> ActorParts:
        raise EnvError("made" if "actor_plugin" in sys.modules else "not imported")

    told = RolloutActor(build, 0, 0).about()
    monkeypatch.delitem(sys.modules, "actor_plugin", raising=False)
    assert isinstance(told, Failure)
    assert told.sentence == "made"


def test_a_module_that_an_actor_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another machine of a cluster."""
    monkeypatch.setenv("ROBO_RL_PLUGINS", "no_such_module")
    told = RolloutActor(lambda *_: pytest.fail("built"), 0, 0).about()
    assert isinstance(told, Failure)
    assert "ROBO_RL_PLUGINS names the module 'no_such_module'" in told.sentence
