"""What a benchmark keeps of an earlier call: results of the same evaluation, and of no other."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    return with_verbs("kept_runs", monkeypatch)


def with_verbs(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """The module, and the verbs that it runs, which write what they would find."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module(name)
    ran: list[str] = []

    def verb(name: str, *words: str) -> None:
        given = dict(word.split("=", 1) for word in words)
        ran.append(" ".join([name, *(word for word in words if word.startswith(("episodes", "resume")))]))
        if name == "train":
            Path(given["out"], "policy").mkdir(parents=True)
        elif name == "export":
            Path(given["out"]).mkdir()
        else:
            seeds = list(range(int(given["episodes"])))
            found = {"seeds": seeds, "success": [True] * len(seeds)}
            Path(given["out"]).write_text(json.dumps(found if name == "run" else {"policy": found}))

    monkeypatch.setattr(module, "verb", verb)
    return module, ran


def test_another_number_of_episodes_is_measured_anew(kept: tuple[Any, list[str]], tmp_path: Path) -> None:
    """A kept result of 2 episodes is no result of 4, and both are kept."""
    module, ran = kept
    for episodes in (2, 4, 2, 4):
        found = module.measured(tmp_path, tmp_path / "own", tmp_path / "log.txt", episodes)
        assert len(module.outcomes(found)) == episodes
    assert ran == ["evaluate episodes=2", "evaluate episodes=4"]


def test_another_number_of_flights_is_measured_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Flights of a robot's nodes are kept as evaluations are; the bundle is exported once."""
    module, ran = with_verbs("vla_drone", monkeypatch)
    (tmp_path / "run").mkdir()
    for episodes in (2, 4, 2, 4):
        assert len(module.flown(tmp_path / "run", episodes)) == episodes
    assert ran == ["export", "run episodes=2", "run episodes=4"]


def test_runs_of_the_drone_with_other_settings_have_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of another batch size were taken for those that were asked for."""
    module, _ = with_verbs("vla_drone", monkeypatch)
    settings = (600, 0.4, 1500, 64), (600, 0.4, 1500, 32), (600, 0.4, 900, 64), (600, 0.0, 1500, 64)
    assert len({module.name_of_runs(*each) for each in settings}) == 4


def test_a_finished_training_is_kept_and_a_stopped_one_continues(
    kept: tuple[Any, list[str]], tmp_path: Path
) -> None:
    module, ran = kept
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / "run.json").touch()
    assert module.trained(tmp_path / "stopped", tmp_path / "log.txt") == 0
    assert module.trained(tmp_path / "stopped", tmp_path / "log.txt") is None
    assert ran == ["train resume=true"]


def test_outcomes_of_one_task_and_rates_over_seeds(
    kept: tuple[Any, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes are told apart by their seed; the rate is that of all seeds together."""
    module, _ = kept
    monkeypatch.setattr(module, "task_in", lambda env, seed: seed % 2)
    measurement = {"policy": {"seeds": [1, 2, 3, 4], "success": [True, False, False, True]}}
    assert module.outcomes(measurement, "env", 1) == [True, False]
    lines: list[tuple[Any, ...]] = []
    monkeypatch.setattr(module, "emit", lambda *words, **more: lines.append((*words, more)))
    module.report("name", [[True, True], [True, False]], {"updates": 3})
    ((name, rate, unit, more),) = lines
    assert (name, rate, unit) == ("name", 0.75, "fraction")
    assert (more["k"], more["n"], more["seeds"], more["updates"]) == (3, 4, [1.0, 0.5], 3)
