"""`method=auto` in many environments: they train in lanes, and the best policy is saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("metaworld", reason="needs MetaWorld: pip install 'robo-rl[sim]'")

from policies.checkpoint import load_policy
from robo_rl.apps.training.base_run import train
from robo_rl.apps.tuning import comparison
from robo_rl.apps.tuning.auto import imitation, plan, verb
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.files.durable import read_json
from robo_rl.eval.race import Race
from tests.apps.tuning.auto.auto_runs import Base, finetune, note


@pytest.mark.parametrize("perfect", [False, True])
def test_many_environments_train_in_lanes(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, perfect: bool
) -> None:
    """By default 32 environments: every step is within env_steps, and a base that is beaten in the race, or
    never fails, is kept.
    """
    if perfect:
        monkeypatch.setattr(comparison.TrainingEpisodes, "perfect_base", lambda *_: True)
    monkeypatch.setattr(comparison.TrainingEpisodes, "favour_policy", lambda _: False)
    monkeypatch.setattr(comparison, "race", lambda *_: Race((False,), (True,), 7))
    assert finetune(base, tmp_path / "run", "num_envs=0", "env_steps=1500") == 0
    found = read_json(tmp_path / "run/results.json")
    assert found["env_steps"] == sum(found["steps"].values()) <= 1500
    # the imitation races against the trained policy, and the winner against each form of the base
    assert found["steps"]["selection"] == (0 if perfect else 21)
    assert (tmp_path / "run/imitation").exists() is not perfect
    assert (found["steps"]["training"] == 0) is perfect
    kept = "there is nothing to learn" if perfect else "the base 1/1"
    assert kept in " ".join(found["decided_by"])
    weights = [(folder / "policy/weights.safetensors").read_bytes() for folder in (tmp_path / "run", base[1])]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("solves", "outdone", "kind"),
    [(True, False, "generative"), (True, True, "residual"), (False, False, "residual")],
)
def test_in_lanes_the_imitation_is_kept_unless_it_is_worse(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solves: bool, outdone: bool,
    kind: str,
) -> None:  # fmt: skip
    """It ties with the trained policy, perhaps below its training episodes, or loses; the winner then beats
    the base.
    """
    monkeypatch.setattr(comparison.TrainingEpisodes, "outdo", lambda *_: outdone)
    outcomes = iter([Race((solves,), (True,), 7), Race((True,) * 8, (False,) * 8, 7)])
    monkeypatch.setattr(comparison, "race", lambda *_: next(outcomes))
    monkeypatch.setattr(comparison.TrainingEpisodes, "favour_policy", lambda _: True)
    assert finetune(base, tmp_path / "run", "num_envs=16", "env_steps=1500") == 0
    assert load_policy(tmp_path / "run/policy").kind == kind
    found = read_json(tmp_path / "run/results.json")
    assert "the policy that imitates its successes" in found["decided_by"][1]
    assert [(stage["name"], stage["env_steps"]) for stage in found["stages"][1:]] == [("imitation", 7)]
    assert (found["stages"][1]["after"]["k"], found["stages"][1]["before"]["k"]) == (int(solves), 1)
    assert (
        found["curve"]["train_cpu_s"] > read_json(tmp_path / "run/imitation/cost.json")["train_cpu_s"] > 0.0
    )
    assert note(tmp_path / "run")["noise"] == 0.0


@pytest.mark.parametrize("reason", ["hardly a failure", "pictures"])
def test_in_lanes_imitation_needs_failures_and_cheap_records(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """A base with pictures is not recorded, because each record would draw them."""
    if reason == "pictures":
        monkeypatch.setattr(verb, "_sees_pictures", lambda _: True)
    else:
        monkeypatch.setattr(comparison.TrainingEpisodes, "good_enough", lambda _: True)
    assert finetune(base, tmp_path / "run", "num_envs=16", "env_steps=1500") == 0
    assert not (tmp_path / "run/imitation").exists()
    assert (tmp_path / "run/episodes").exists() is (reason != "pictures")


@pytest.mark.long
def test_a_run_in_lanes_that_stops_in_its_imitation_resumes_there(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped while the new base learns, moved, resumed: the same policy and the same count of steps."""
    given = ("num_envs=16", "env_steps=1500")
    monkeypatch.setattr(comparison, "race", lambda *_: Race((True,) * 8, (False,) * 8, 7))
    assert finetune(base, tmp_path / "whole", *given) == 0

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt("here")

    monkeypatch.setattr(imitation, "train", stop)
    assert finetune(base, tmp_path / "stopped", *given) == 130
    monkeypatch.setattr(imitation, "train", train)
    (tmp_path / "stopped").rename(tmp_path / "moved")
    assert finetune(base, tmp_path / "moved", *given, "resume=true") == 0
    runs = (tmp_path / "whole", tmp_path / "moved")
    assert load_policy(runs[1] / "policy").kind == "generative"
    weights = [(run / "policy/weights.safetensors").read_bytes() for run in runs]
    assert weights[0] == weights[1]
    assert note(runs[0])["steps"] == note(runs[1])["steps"]


def test_number_of_environments(base: Base) -> None:
    """32 for auto with demonstrations, 4 without, and what the user says."""
    method = plan.stage_method("auto")
    config = FinetuneVerb(out="unused", base=str(base[1]), demos=str(base[0]), method=method)
    assert verb.environments(config) == 32
    assert verb.environments(replace(config, demos=None)) == 4
    assert verb.environments(replace(config, num_envs=2)) == 2
