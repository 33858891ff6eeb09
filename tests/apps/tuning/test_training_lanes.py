"""Environments of a training run: the curriculum of a suite follows outcomes, and a restart continues it."""

from __future__ import annotations

from typing import Any

import pytest

from robo_rl.apps.tuning import training_lanes
from robo_rl.apps.tuning.training_lanes import LocalLanes, check_curriculum, curriculum_of
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.rl.running import CollectedEpisode
from tests.rl.worlds import make_env


@pytest.fixture(autouse=True)
def two_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy environment as a suite whose task is the parity of the seed."""
    monkeypatch.setattr(training_lanes, "tasks_in", lambda name: ("even", "odd"))
    monkeypatch.setattr(training_lanes, "task_in", lambda name, seed: seed % 2)


def lanes() -> LocalLanes:
    method = MethodConfig(least_weight=0.05)
    return LocalLanes(make_env(2), ("train", 0), curriculum=curriculum_of(method, "toy/suite"))


def test_equal_shares_need_no_curriculum() -> None:
    assert curriculum_of(MethodConfig(), "toy/suite") is None


def test_actors_of_a_suite_need_equal_shares() -> None:
    """They draw the tasks of their episodes apart from each other."""
    config = FinetuneVerb(out="x", env="toy/suite", launcher="ray", method=MethodConfig(least_weight=0.05))
    with pytest.raises(ConfigError, match=r"method\.least_weight=0\.05\. Set it to 1"):
        check_curriculum(config)
    check_curriculum(FinetuneVerb(out="x", env="toy/suite", launcher="ray"))


def test_a_restart_continues_the_curriculum() -> None:
    """Odd seeds fail and even ones succeed, so episodes become odd; the restarted run draws the same ones."""
    plain: Any = lanes()
    plain.env.reset(plain._seeds)
    plain.learn([CollectedEpisode(seed, seed % 2 == 0, 5, 0.0) for seed in range(60)])
    again: Any = lanes()
    again.restore(plain.state_dict())
    drawn = [next(plain._seeds) for _ in range(40)]
    assert drawn == [next(again._seeds) for _ in range(40)]
    assert sum(seed % 2 for seed in drawn) > 30
