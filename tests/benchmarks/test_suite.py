"""Report of `benchmarks/suite.py` on finished, refused and missing runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_report_of_finished_and_refused_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends 1.0 and 0.9 over two seeds, one task that lost 5 points, one whose expert failed, one not run."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module("suite")
    lines: dict[str, tuple[float, dict[str, Any]]] = {}
    monkeypatch.setattr(
        module, "emit", lambda name, value, unit, **extra: lines.update({name: (value, extra)})
    )
    names = ["reach", "push", "sweep", "assembly"]
    calls = [
        module.Call(task, "residual_lanes", seed, None, tmp_path, 50_000, False, 20)
        for seed in range(2)
        for task in names
    ]
    rates = {"reach": (0.5, 0.6, 0.95), "push": (0.8, 0.95, 0.9)}  # base, without noise, end
    for call in calls:
        call.home.mkdir(parents=True)
        if call.task in rates:
            base, zero, end = rates[call.task]
            shift = 0.05 if call.task == "reach" and call.seed else 0.0
            found = module.SeedResult(call.seed, base, zero, end + shift, 100, None, 50_000, 9.0, 0.0, 0)
            (call.home / f"{call.label}.json").write_text(json.dumps(asdict(found)))
        if call.task == "sweep":
            module.reason_file(call).write_text("no episode succeeded")
    module.report(names, calls, of_all=False)
    assert "suite/mt50/median" not in lines
    module.report(names, calls, of_all=True)
    assert lines["suite/mt50/reach/end"] == (
        pytest.approx(0.975), {"per_seed": [0.95, 1.0], "seeds": 2, "method": "residual_lanes"}
    )  # fmt: skip
    assert lines["suite/mt50/sweep/left_out"] == (2, {"why": "no episode succeeded"})
    assert lines["suite/mt50/median"] == lines["suite/mt50/mean"] == (pytest.approx(0.9375), {"tasks": 2})
    assert lines["suite/mt50/tasks_below_base"] == (1, {"tasks": 2, "names": ["push"]})
    assert not any("assembly" in name for name in lines)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("None of 200 episodes succeeded", 2),
        ("this is an error in robo-rl itself; please report it", 1),
        ("stopped; saved step 9", 130),
    ],
)
def test_only_a_refusal_leaves_a_task_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int
) -> None:
    """A run that an error of the program or a signal ended is run again."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module("suite")
    call = module.Call("sweep", "auto", 0, None, tmp_path, 50_000, False, 20)

    def run_seed(call: Any) -> None:
        call.home.mkdir(parents=True)
        (call.home / f"{call.label}.log").write_text(f"collect:  50%\rrobo-rl: {said}\n")
        raise SystemExit(f"robo-rl collect failed with exit code {code}")

    monkeypatch.setattr(module, "run_seed", run_seed)
    log = module.attempt(call)
    assert (log is not None and log.exists()) is (code != 2)
    assert module.reason_file(call).exists() is (code == 2)
    if code == 2:
        assert module.reason_file(call).read_text() == said
        assert module.attempt(call) is None  # not run again
