"""benchmarks/vla.py: what each task is told, and what is kept."""

from __future__ import annotations

import json
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.apps.tuning.report import evaluation_seeds
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import DatasetWriter
from robo_rl.eval.rollout import eval_seeds
from sim.adapters.metaworld_instructions import SUITES, tasks_of
from sim.registry import task_in

ARM = EnvSpec("robot/x", {"state": ArraySpec((2,))}, ActionSpec((-1.0,), (1.0,)), 9, 10.0)
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
    args = Namespace(suite="mt6", name="vla", checkpoint=7, bases=None, eval_seed=0)
    args.episodes_per_task, args.most_steps, args.workers = 2, None, 0
    outcomes = module.Measurement(args, tmp_path).other_instruction()
    assert outcomes == {task: [True, False] for task in SUITES["mt6"]}
    for task, instruction in told.items():
        thing, verb_of_task, _ = task.split("-")
        assert instruction == f"{'close' if verb_of_task == 'open' else 'open'} the {thing}"
    told.clear()
    assert module.Measurement(args, tmp_path).other_instruction() == outcomes
    assert not told
    args.eval_seed = 8  # other episodes, which need files of their own
    module.Measurement(args, tmp_path).other_instruction()
    assert len(told) == 6


def test_after_rl_counts_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Base 1 of 2 in every task; seed 0 solves all, seed 1 fails one task: that one changes by 0."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module("vla")
    tuned: list[int] = []

    def verb(name: str, *words: str, **settings: Any) -> None:
        if name == "finetune":
            assert (settings["base"], settings["env_steps"]) == (f"{tmp_path / 'vla_mt6'}@7", 24)
            tuned.append(settings["seed"])
            settings["out"].mkdir(parents=True)
            took: dict[str, Any] = {"env_steps": 24 - 2 * settings["seed"]}  # seed 1 was ended by its time
            took["steps"] = {"training": took["env_steps"] - 4, "selection": 4}
            took["curve"] = {"train_cpu_s": 9.6}
            (settings["out"] / "results.json").write_text(json.dumps(took))
            return
        seeds = evaluation_seeds("metaworld/mt6", 0, 12)
        tasks = [module.task_in("metaworld/mt6", seed) for seed in seeds]
        base, good = "@" in str(settings["policy"]), "seed0" in str(settings["policy"])
        success = [
            (i in [tasks.index(j) for j in range(6)]) if base else (good or task != 3)
            for i, task in enumerate(tasks)
        ]
        settings["out"].parent.mkdir(parents=True, exist_ok=True)
        report = {"env": "metaworld/mt6", "policy": {"seeds": seeds, "success": success}}
        settings["out"].write_text(json.dumps(report))

    said: dict[str, float] = {}
    monkeypatch.setattr(module, "verb", verb)
    monkeypatch.setattr(module, "emit", lambda name, value, unit, **more: said.update({name: value}))
    args = Namespace(
        suite="mt6", name="vla", checkpoint=7, episodes_per_task=2, most_steps=None, demos=15, batch_size=16,
        rl="steering", rl_seeds=[0, 1], bases=None, rl_steps=24, rl_set=[], workers=0, device="cpu",
        eval_seed=0,
    )  # fmt: skip
    measurement = module.Measurement(args, tmp_path)
    outcomes = measurement.after_rl()
    assert tuned == [0, 1]
    bases = [f"vla/mt6/after_rl_success/{kind}" for kind in ("base", "base_without_noise")]
    assert said == dict.fromkeys(bases, 0.5)
    assert sum(map(sum, outcomes.values())) == 12 + 10
    assert measurement.more["env_steps"] == [24, 22]
    assert measurement.more["selection_env_steps"] == [4, 4]
    assert measurement.more["base"] == 0.5
    assert measurement.more["seeds"] == [1.0, 10 / 12]
    assert measurement.more["base_of_seeds"] == measurement.more["base_without_noise"] == [0.5, 0.5]
    assert measurement.more["least_change_of_a_task"] == 0.0
    assert sorted(measurement.more["change"].values()) == [0.0] + [0.5] * 5
    args.bases = ["vla_s1", "vla_s2"]
    with pytest.raises(SystemExit, match=r"vla_s1_mt6.* Train them first"):
        measurement.bases()


def test_a_lesson_is_taught_once_and_all_steps_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teacher, then episodes of 3 and 4 steps at the second and fifth attempt: at most three that failed, and
    the six that were running.
    """
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module("vla_teacher")
    called = list[str]()

    def verb(name: str, *words: str, **settings: Any) -> None:
        called.append(name)
        out = settings["out"]
        if name == "evaluate":
            out.parent.mkdir(parents=True, exist_ok=True)
            seeds, faucet = list(range(12)), tasks_of("mt6").index("faucet-close-v3")
            success = [task_in("metaworld/mt6", seed) != faucet for seed in seeds]
            assert not all(success)
            took = {"seeds": seeds, "success": success, "env_steps": 50, "cpu_s": 1.0}
            out.write_text(json.dumps({"policy": took}))
            return
        if name == "finetune":
            (out / "policy").mkdir(parents=True)
            (out / "policy" / "policy.json").write_text("{}")
            took = {"env_steps": 100, "steps": {"selection": 8}, "curve": {"train_cpu_s": 5.0}}
            (out / "results.json").write_text(json.dumps(took))
            return
        if out.exists():  # `collect` keeps what is there
            return
        writer, drawn = DatasetWriter.create(out, ARM), EpisodeSeeds(("collect", settings["seed"]))
        seeds = [next(drawn) for _ in range(5)]
        for seed, steps in ((seeds[1], 3), (seeds[4], 4)):
            with writer.episode(task="x", seed=seed) as episode:
                obs = {"state": np.zeros(2, np.float32)}
                for _ in range(steps):
                    episode.add(obs, np.zeros(1, np.float32), reward=0.0)
                episode.commit(success=True, final_obs=obs)

    monkeypatch.setattr(module, "verb", verb)
    given = ("base", tmp_path / "demos", "metaworld/mt6", 0, tmp_path / "lesson", 2)
    first, second = tmp_path / "pupil", tmp_path / "pupil_round2"
    lesson = module.Lesson(*given, [first])
    for _ in range(2):
        lesson.teach(100, 6, [])
        assert lesson.record(rounds=1) == [tmp_path / "lesson" / "data"]
    assert called == ["finetune", "collect", "collect"]
    costs = lesson.costs()
    assert (costs["env_steps"], costs["selection"]) == (100 + 7 + 200 * (3 + 6), 8)
    assert costs["train_cpu_s"] >= 5.0
    halves = module.Lesson(*given, [first], half_alone=True)
    assert [(each.episodes, each.takeover) for each in halves.recordings(1)] == [(1, 0.5), (1, 0.0)]
    halves.record(rounds=1)
    assert halves.costs()["env_steps"] == 100 + 2 * (7 + 200 * (3 + 6))
    two = module.Lesson(*given, [first, second])
    assert [each.begun_by for each in two.recordings(2)] == [None, first]
    assert two.record(rounds=2) == [tmp_path / "lesson" / "data", tmp_path / "lesson" / "round2"]
    assert two.costs()["env_steps"] == 100 + 2 * (7 + 200 * (3 + 6))
    three = module.Lesson(*given, [first, second, tmp_path / "pupil_round3"], by_failures=2)
    last = three.recordings(3)[-1]
    assert (last.task, last.episodes, last.begun_by) == ("faucet-close-v3", 2, second)
    assert three.recordings(3) == three.recordings(3)  # the pupil is measured once
    assert called.count("evaluate") == 1
    three.record(rounds=3)
    costs = three.costs()
    assert costs["selection"] == 8 + 50
    assert costs["env_steps"] < 100 + 3 * (7 + 200 * (3 + 6)) + 50  # attempts of this task alone
