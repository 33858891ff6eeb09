"""benchmarks/vla.py: what each task is told, and what is kept."""

from __future__ import annotations

import json
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from robo_rl.eval.rollout import eval_seeds
from sim.adapters.metaworld_instructions import SUITES

ROOT = Path(__file__).resolve().parents[2]


def test_each_task_is_told_its_opposite_and_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of the other task of its pair; a second call evaluates nothing."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module("vla")
    told: dict[str, str] = {}

    def verb(name: str, **settings: Any) -> None:
        assert name == "evaluate"
        told[settings["tasks"].strip("[]")] = settings["instruction"]
        seeds = eval_seeds(0, 40)
        of_task = SUITES["mt6"].index(settings["tasks"].strip("[]"))
        seeds = [seed for seed in seeds if module.task_in("metaworld/mt6", seed) == of_task][:2]
        report = {"env": "metaworld/mt6", "policy": {"seeds": seeds, "success": [True, False]}}
        settings["out"].parent.mkdir(exist_ok=True)
        settings["out"].write_text(json.dumps(report))

    monkeypatch.setattr(module, "verb", verb)
    args = Namespace(suite="mt6", name="vla", checkpoint=7, episodes_per_task=2, most_steps=None)
    outcomes = module.Measurement(args, tmp_path).other_instruction()
    assert outcomes == {task: [True, False] for task in SUITES["mt6"]}
    for task, instruction in told.items():
        thing, verb_of_task, _ = task.split("-")
        assert instruction == f"{'close' if verb_of_task == 'open' else 'open'} the {thing}"
    told.clear()
    assert module.Measurement(args, tmp_path).other_instruction() == outcomes
    assert not told
