"""`method=auto` in few environments: stages train within the steps of a run, and the best policy is saved."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("metaworld", reason="needs MetaWorld: pip install 'robo-rl[sim]'")

from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_policy
from robo_rl.apps.tuning import comparison
from robo_rl.apps.tuning.auto import imitation, plan, stages, verb
from robo_rl.apps.tuning.auto.plan import StepBudget
from robo_rl.apps.tuning.loop import run_method
from robo_rl.apps.tuning.start import with_planning_interval
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import read_json
from robo_rl.data.store import EpisodeStore
from robo_rl.eval.probe import Probe
from robo_rl.eval.race import Played
from robo_rl.eval.stats import MeanReturn, SuccessRate, pooled
from robo_rl.eval.training_history import TrainingHistory
from robo_rl.runs.learning_curve import LearningCurve, StageRecord, TuningResult
from robo_rl.runs.run_dir import RunDir
from tests.apps.tuning.auto.auto_runs import TOTAL, Base, finetune, last_success_is, note, races, record_all
from tests.apps.tuning.barely_trained import reach_base
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC


@pytest.fixture(scope="module")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """(demonstrations, base policy) of a real task, barely trained."""
    return reach_base(tmp_path_factory.mktemp("auto"), width=16)


@pytest.mark.long
def test_every_step_of_a_real_run_is_within_its_limit(
    reach: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds on a real task: what trains and what chooses together stays within env_steps=, and at most
    15 % chooses.
    """
    monkeypatch.setattr(plan, "ROUND_STEPS", 600)
    assert finetune(reach, tmp_path / "run", "env_steps=2000") == 0
    found = read_json(tmp_path / "run/results.json")
    assert sum(found["steps"].values()) == found["env_steps"] == note(tmp_path / "run")["env_steps"] <= 2000
    assert found["steps"]["selection"] <= 300
    assert found["steps"]["base"] + found["steps"]["training"] == 1700
    assert [stage["env_steps"] for stage in found["stages"] if "residual" in stage["name"]] == [848, 852]


def test_without_demonstrations_steering_comes_first(base: Base, tmp_path: Path) -> None:
    """Its 120 steps, then a residual on the better of steering and the base."""
    assert finetune((Path("none"), base[1]), tmp_path / "run") == 0
    found = read_json(tmp_path / "run/results.json")
    assert [stage["name"] for stage in found["stages"]][:2] == ["steering", "residual_far"]
    assert found["stages"][0]["env_steps"] == 120
    assert found["env_steps"] <= TOTAL


def course_of(base: Base, out: Path) -> stages._AutoRun:
    """A run of 4,000 steps that is about to begin."""
    config = FinetuneVerb(out=str(out), base=str(base[1]), num_envs=4, method=plan.stage_method("auto"))
    policy = load_policy(base[1] / "policy")
    start = stages.Stage(policy, 0.0, None)
    return stages._AutoRun(config, policy, RunDir(out), start, StepBudget(4000, lanes=4))


@pytest.mark.parametrize(("solved", "kept"), [(23, True), (12, False)])
def test_steering_takes_the_place_of_the_base_by_the_base_s_own_episodes(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solved: int, kept: bool
) -> None:
    """A success of 13 of 24 exceeds that of the base with N(0, I), 41 of 104; the base itself, without noise
    and at its own planning interval, has 23 or 12 of 32.
    """
    without = StageRecord("residual", 2784, None, None)
    assert str(without) == "residual: no training episode was completed in 2784 steps"
    record = StageRecord("steering", 120, SuccessRate(41, 104), None)
    used = {"base": 40, "training": 80, "selection": 0}
    found = TuningResult(flow_policy(SPEC), 1.0, LearningCurve(), used, (), TrainingHistory(), (record,))
    monkeypatch.setattr(stages, "run_method", lambda *_, **__: found)
    last_success_is(monkeypatch, SuccessRate(13, 24))
    successes = iter([True] * solved + [False] * (32 - solved))
    monkeypatch.setattr(stages, "player", lambda *_: lambda _: Played(next(successes), 1))
    course = course_of(base, tmp_path)
    monkeypatch.setattr(RunDir, "create", lambda *_, **__: RunDir(tmp_path / "steering"))
    course.steer()
    assert (course.best.policy is course.next.policy is course.base) is kept
    assert course.best.rate == (SuccessRate(23, 32) if kept else SuccessRate(13, 24))
    assert course.stages[0].before == SuccessRate(41, 104)


def test_own_episodes_of_the_base_count_and_are_run_once(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They fit into the given steps even at full length (6), and a resumed run reads them."""
    first, again = course_of(base, tmp_path), course_of(base, tmp_path)
    rate = first._measure(first.next, 41)
    assert rate is not None
    assert rate.n >= 6
    assert 36 <= first.steps.base <= 41
    monkeypatch.setattr(stages, "player", None)
    assert (again._measure(again.next, 41), again.steps.base) == (rate, first.steps.base)
    other = course_of(base, tmp_path / "short")
    (tmp_path / "short").mkdir()
    monkeypatch.setattr(stages, "player", lambda *_: None)
    assert other._measure(other.next, 5) is None


def test_training_stops_at_the_target_success(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No imitation and no second round after 98 of 100 training episodes; 9 of 9 say too little."""
    monkeypatch.setattr(plan, "ROUND_STEPS", 120)
    for rate, goes_on in ((SuccessRate(98, 100), False), (SuccessRate(9, 9), True)):
        last_success_is(monkeypatch, *[rate] * 3)
        out = tmp_path / str(rate.n)
        assert finetune(base, out) == 0
        assert (out / "residual2").exists() is goes_on


def test_the_base_is_kept_if_nothing_beats_it(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its weights and its own noise."""
    last_success_is(monkeypatch, *[SuccessRate(0, 40)] * 3)
    races(monkeypatch, (False,), (True,))
    assert finetune(base, tmp_path / "run") == 0
    weights = [(folder / "policy/weights.safetensors").read_bytes() for folder in (tmp_path / "run", base[1])]
    assert weights[0] == weights[1]
    assert "the base is kept" in capsys.readouterr().out


def test_second_residual_corrects_the_imitating_base(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two rounds: successes of the first and the demonstrations train a new base and are replayed. The last
    imitation wins a tie.
    """
    record_all(monkeypatch)
    monkeypatch.setattr(plan, "ROUND_STEPS", 150)
    monkeypatch.setattr(stages, "LEAST_PAIRS", 0)
    monkeypatch.setattr(stages._AutoRun, "goes_on", lambda _: True)
    races(monkeypatch, (True, False), (False, True))
    assert finetune(base, tmp_path / "run") == 0
    run = tmp_path / "run"
    first, made = EpisodeStore(run / "residual/run/episodes"), EpisodeStore(run / "imitation/data")
    assert len(first) > 0
    assert len(made) == len(EpisodeStore(base[0])) + len(first)
    imitator = load_policy(run / "imitation/run/policy")
    assert isinstance(imitator, GenerativePolicy)
    built, first_base = imitator.config(), load_policy(base[1] / "policy").config()
    assert all(
        built[name] == first_base[name] for name in ("net", "process", "obs_steps", "chunk", "execute")
    )
    settings = yaml.safe_load((run / "residual2/run/config.yaml").read_text())
    assert settings["demos"] == str(run / "imitation/data")
    weights = {
        name: (run / name / "weights.safetensors").read_bytes()
        for name in ("imitation/run/policy", "residual2/base", "imitation2/run/policy", "policy")
    }
    assert weights["imitation/run/policy"] == weights["residual2/base"]
    assert weights["imitation2/run/policy"] == weights["policy"]
    assert "imitation: 1/2" in capsys.readouterr().out


def test_a_diverged_stage_gives_advice_that_auto_accepts(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It refuses the learning rates of its methods."""
    recipe = plan.stage_method

    def too_fast(name: str) -> MethodConfig:
        method = recipe(name)
        method.learner.lr_actor = method.learner.lr_critic = 1e38
        return method

    monkeypatch.setattr(stages, "stage_method", too_fast)
    assert finetune(base, tmp_path / "run") != 0
    said = capsys.readouterr().err
    assert "are NaN and were not saved. Look for NaN in the environment's rewards, or choose a method" in said


def test_a_diverged_imitation_gives_advice_that_auto_accepts(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It refuses lr= of the imitation, too."""
    record_all(monkeypatch)
    monkeypatch.setattr(plan, "ROUND_STEPS", 150)
    monkeypatch.setattr(stages._AutoRun, "goes_on", lambda _: True)
    monkeypatch.setattr(imitation, "TrainConfig", partial(TrainConfig, lr=1e30, log_every=1))
    assert finetune(base, tmp_path / "run") != 0
    said = capsys.readouterr().err
    assert f"The imitation of method=auto in {tmp_path / 'run/imitation/run'} has diverged" in said
    assert "choose a method that trains no new base, e.g. method=residual" in said
    assert "lr=" not in said


def test_a_stopped_stage_does_not_hide_those_before_it(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second Ctrl-C before the first checkpoint of the second stage."""
    calls: list[int] = []

    def stopped(*arguments: Any, **options: Any) -> TuningResult:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run_method(*arguments, **options)

    monkeypatch.setattr(stages, "run_method", stopped)
    assert finetune((Path("none"), base[1]), tmp_path / "run") == 130
    said = capsys.readouterr().err
    assert f"saved the stages so far in {tmp_path / 'run'}; the same command with resume=true" in said


@pytest.mark.parametrize(("successes", "kept"), [(8, True), (2, False)])
def test_an_imitation_becomes_the_best_unless_it_is_clearly_worse(successes: int, kept: bool) -> None:
    """8 of 20 after 10 of 20 may be chance; 2 of 20 is not. Unknown success is never better."""
    best = SuccessRate(10, 20)
    assert stages.is_clearly_worse(SuccessRate(successes, 20), best) is not kept
    assert stages.is_clearly_worse(None, best)
    assert not stages.is_clearly_worse(SuccessRate(0, 20), None)


def test_a_success_is_better_than_any_return_without_one() -> None:
    """A stage without a reported success is measured by its returns, the next one by its successes."""
    assert stages.is_better(SuccessRate(1, 20), MeanReturn.of([300.0, 310.0]))
    assert not stages.is_better(MeanReturn.of([300.0, 310.0]), SuccessRate(1, 20))


def test_counts_of_episodes_are_kept() -> None:
    """65 of 114 stays 65 of 114 when it is passed on, and adds up with the next stage's episodes."""
    assert pooled(SuccessRate(65, 114), None) == SuccessRate(65, 114)
    assert pooled(SuccessRate(65, 114), SuccessRate(5, 6)) == SuccessRate(70, 120)
    history = TrainingHistory()
    for i in range(114):
        history.add(i < 65, 10, float(i < 65), of_base=False, progress=0.9)
    assert stages.last_success(history) == SuccessRate(65, 114)


def test_a_stage_judges_its_base_without_bias(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the training episodes that had time to fail, not by all that ended."""
    monkeypatch.setattr(comparison.TrainingEpisodes, "measures", lambda _: {"base": SuccessRate(5, 9)})
    assert finetune(base, tmp_path / "run") == 0
    (first, *_) = read_json(tmp_path / "run/results.json")["stages"]
    assert (first["before"]["k"], first["before"]["n"]) == (5, 9)


@pytest.mark.parametrize(
    ("rate", "recipe", "scale"),
    [
        (None, "residual_far", 0.4),
        (SuccessRate(35, 40), "residual_far", 0.4),
        (SuccessRate(36, 40), "residual", 0.2),
    ],
)
def test_weak_base_gets_residual_far(
    base: Base,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rate: SuccessRate | None,
    recipe: str,
    scale: float,
) -> None:
    """Below 90 %, or if nothing is known, the base's errors may exceed the usual residual's scale."""
    monkeypatch.setattr(stages, "make_plan", lambda *_: plan.StagePlan(False, "", 0.0, rate))
    assert finetune(base, tmp_path / "run") == 0
    config = yaml.safe_load((tmp_path / "run/residual/run/config.yaml").read_text())
    assert (config["method"]["name"], config["method"]["map"]["scale"]) == (recipe, scale)


def test_stopped_run_resumes_within_its_stage(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after the first residual, moved, resumed: the same policy and the same count of steps."""
    monkeypatch.setattr(plan, "ROUND_STEPS", 150)
    assert finetune(base, tmp_path / "whole") == 0
    last_success = stages.last_success

    def stop(_: TrainingHistory) -> SuccessRate:
        raise KeyboardInterrupt("here")

    monkeypatch.setattr(stages, "last_success", stop)
    assert finetune(base, tmp_path / "stopped") == 130
    monkeypatch.setattr(stages, "last_success", last_success)
    (tmp_path / "stopped").rename(tmp_path / "moved")
    assert finetune(base, tmp_path / "moved", "resume=true") == 0
    weights = [(tmp_path / name / "policy/weights.safetensors").read_bytes() for name in ("whole", "moved")]
    assert weights[0] == weights[1]
    assert note(tmp_path / "whole")["steps"] == note(tmp_path / "moved")["steps"]


@pytest.mark.parametrize(("best_of", "steering"), [(20, True), (10, False)])
def test_the_probe_chooses_and_its_steps_count(
    best_of: int, steering: bool, base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result is passed on: the better noise, with its success if the base plans as often as the probe. A
    second call reads the stored one.
    """
    rates = [SuccessRate(k, 20) for k in (8, 6, best_of)]
    calls: list[int] = []

    def probed(*_: Any, **settings: Any) -> Probe:
        calls.append(settings["episodes"])
        return Probe(rates[0], rates[1], rates[2], draws=8, env_steps=70, cpu_s=0.0)

    monkeypatch.setattr(plan, "probe", probed)
    config = FinetuneVerb(out="unused", base=str(base[1]), demos=str(base[0]))
    for _ in range(2):
        budget = StepBudget(1_000_000, lanes=4)
        found = plan.make_plan(config, flow_policy(SPEC), RunDir(tmp_path), budget)
        assert (found.steering, found.noise_scale, found.rate) == (steering, 1.0, rates[0])
        assert budget.selection == 70
    rare = with_planning_interval(flow_policy(SPEC), 4)
    found = plan.make_plan(config, rare, RunDir(tmp_path), StepBudget(1_000_000, lanes=4))
    assert (found.steering, found.noise_scale, found.rate) == (steering, 1.0, None)
    assert calls == [50]


def test_method_settings_are_refused(base: Base, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings that no recipe of `auto` uses are refused before anything is written."""
    assert finetune(base, tmp_path / "run", "method.learner.tau=0.1") == 2
    assert "method=steering" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="init=other continues the networks of one method"):
        verb.check_auto(FinetuneVerb(init="other", method=plan.stage_method("auto")))
    assert not (tmp_path / "run").exists()
