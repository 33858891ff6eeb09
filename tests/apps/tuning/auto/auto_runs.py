"""Runs of `method=auto` on small tasks, with set outcomes of episodes and races."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.tuning import comparison, training_lanes
from robo_rl.apps.tuning.auto import stages
from robo_rl.eval.race import Race
from robo_rl.eval.stats import SuccessRate
from sim.vec.recorded import Recorded

TOTAL = 360
Base = tuple[Path, Path]  # demonstrations, run of the base


def finetune(base: Base, out: Path, *more: str) -> int:
    """The verb, in this process."""
    usual = (
        f"env_steps={TOTAL}",
        "num_envs=4",
        "eval_every=120",
        "eval_episodes=2",
        "final_episodes=4",
        "max_episode_steps=40",
        "checkpoint_every=80",
    )
    given = {word.partition("=")[0] for word in more}
    words = [word for word in usual if word.partition("=")[0] not in given]
    where = (f"base={base[1]}", f"demos={base[0]}".replace("demos=none", "demos=null"), f"out={out}")
    return robo_rl(["finetune", *where, *words, *more])


def record_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also record failures: so few steps have no success. They are not imitated, but can be merged."""

    def keeping(*arguments: Any, **settings: Any) -> Any:
        return Recorded(*arguments, **settings | {"keep_all": True})

    monkeypatch.setattr(training_lanes, "Recorded", keeping)


def note(out: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((out / "policy" / "policy.json").read_text())["train"]
    return data


def last_success_is(monkeypatch: pytest.MonkeyPatch, *rates: SuccessRate) -> None:
    """Set the success of the stages' last training episodes, in order."""
    remaining = iter(rates)
    monkeypatch.setattr(stages, "last_success", lambda _: next(remaining))


def races(monkeypatch: pytest.MonkeyPatch, first: tuple[bool, ...], second: tuple[bool, ...]) -> list[int]:
    """Set the outcome of every race; returns the steps that the races were given."""
    given: list[int] = []

    def raced(*arguments: Any) -> Race:
        given.append(arguments[3])
        return Race(first, second, 7)

    monkeypatch.setattr(stages, "race_of", raced)
    monkeypatch.setattr(comparison, "race_of", raced)
    return given
