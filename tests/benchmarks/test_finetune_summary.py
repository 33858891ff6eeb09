"""Summary of seeds by `benchmarks/finetune.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_one_broken_seed_of_five(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four seeds at 1 and one at 0: mean 0.8, interquartile mean 1, each with its interval, and the worst
    seed.
    """
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module("finetune")
    lines: dict[str, tuple[float, dict[str, Any]]] = {}
    monkeypatch.setattr(
        module, "emit", lambda name, value, unit, **extra: lines.update({name: (value, extra)})
    )
    calls = [module.Call("push", "residual", seed, None, tmp_path, None, False, 6) for seed in range(5)]
    for call in calls:
        folder = call.home / call.label
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"commit": "abc"}))
    results = [
        module.SeedResult(seed, 0.1 * seed, 0.5, float(seed != 3), 100, None, 12_000, 1.0, 0.0)
        for seed in range(5)
    ]
    module.summarise(calls, results)
    mean, extra = lines["finetune/push/residual/success"]
    assert (mean, extra["iqm"]) == (pytest.approx(0.8), 1.0)
    assert extra["t95"][0] < 0.8 < extra["t95"][1] == 1.0
    assert extra["iqm_bootstrap95"][0] < 1.0 == extra["iqm_bootstrap95"][1]
    assert lines["finetune/push/residual/worst_seed"][0] == 0.0
    value, extra = lines[
        "finetune/push/residual/base/success"
    ]  # of these seeds, whatever other methods were run on
    assert (value, len(extra["per_seed"])) == (pytest.approx(0.2), 5)
    assert "finetune/push/base/success" not in lines
    assert lines["finetune/push/residual/worst_drop_points"] == (0.0, {"per_seed": [0.0] * 5})
    lines.clear()
    module.summarise(calls, [*results[:4], replace(results[4], worst_drop=None)])
    assert "finetune/push/residual/worst_drop_points" not in lines  # one seed was not evaluated on the way


@pytest.mark.parametrize(
    ("rates", "fall"), [([], None), ([0.9], None), ([0.5, 0.75, 0.25, 1.0], 0.25), ([0.5, 0.6], 0.0)]
)
def test_a_fall_needs_two_evaluations(
    monkeypatch: pytest.MonkeyPatch, rates: list[float], fall: float | None
) -> None:
    """A training without evaluations has not been seen to stay above its base."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module("finetune")
    assert module.largest_fall(rates) == fall


def test_runs_in_other_environments_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither their folders nor their lines are those of the method's own number of environments."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module("finetune")
    few = module.Call("push", "auto", 0, None, tmp_path, 24_000, False, 6, num_envs=4)
    shared = module.Call("push", "auto", 0, 1, tmp_path, None, False, 6, num_envs=4)
    assert (few.label, few.suffix) == ("auto-4-envs-24000", "/4_envs")
    assert (shared.label, shared.suffix) == ("auto-4-envs", "/4_envs/one_base")
    settings = ("env_steps=24000", "method.progress_weight=0.5")
    shaped = module.Call("push", "residual", 0, None, tmp_path, None, False, 6, settings=settings)
    assert shaped.label == "residual-env_steps=24000-progress_weight=0.5"
    assert shaped.suffix == "/env_steps=24000/progress_weight=0.5"
