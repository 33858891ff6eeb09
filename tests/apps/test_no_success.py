"""The verbs in an environment that gives returns and never reports whether an episode succeeds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import robo_rl as rr
from robo_rl.apps import collect, evaluate, train
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.hub.card import card
from robo_rl.apps.hub.contents import contents_of
from robo_rl.apps.tuning.watch import TrainingWatch
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.conf.schema import EvaluateConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import read_json
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import Obs
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.eval.rollout import EvalResult
from robo_rl.eval.stats import ReturnTest
from robo_rl.rl.running import CollectedEpisode, RunningEpisodes
from robo_rl.runs.loaded_policy import trained_env_spec
from robo_rl.runs.next_step import after_tuning
from tests.apps.conftest import collect_config, train_config

ENV = "gym/Pendulum-v1"


class Swings:
    """Demonstrator whose torque depends on the lane and the step alone."""

    def __init__(self, lanes: int) -> None:
        self._step, self._lanes = 0, lanes

    def start(self, lane_ids: Sequence[int], seeds: Sequence[int], obs: Obs) -> None:
        pass

    def observe(self, obs: Obs) -> None:
        self._step += 1

    def act(self) -> Tensor:
        lane = torch.arange(self._lanes).unsqueeze(1)
        return 2.0 * torch.sin(0.3 * self._step + lane)

    def intervened(self) -> None:
        return None


def swing(out: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> int:
    """Collect episodes of `Swings`."""
    config = collect_config(out, env=ENV, num_envs=2, max_episode_steps=15, **changes)
    with monkeypatch.context() as patch:
        patch.setattr(collect, "make_demonstrator", lambda config, env, **_: Swings(config.num_envs))
        return collect.main(config)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "pendulum"
    with pytest.MonkeyPatch.context() as patch:
        assert swing(folder, patch, keep="all") == 0
    return folder


@pytest.fixture(scope="module")
def base(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that was trained on `data`."""
    folder = tmp_path_factory.mktemp("runs") / "base"
    assert train.main(train_config(data, folder)) == 0
    return folder


def test_success_of_collected_episodes_is_unknown(data: Path, base: Path) -> None:
    """The next command that collect prints, train, learns from all of them: none is marked as failed."""
    assert [episode.success for episode in EpisodeStore(data)] == [None] * 3
    assert (base / "policy").is_dir()


def test_keeping_successes_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as it is clear that no episode gets a label, and not after ten times the episodes."""
    with pytest.raises(ConfigError, match=r"in none of 20 episodes whether it succeeded.*Give keep=all"):
        swing(tmp_path / "data", monkeypatch)
    with pytest.raises(ConfigError, match=r"in none of 3 episodes whether it succeeded.*Give keep=all"):
        swing(tmp_path / "data", monkeypatch, attempts=3)


@pytest.fixture(scope="module")
def measured(base: Path) -> Path:
    """`base` after an evaluation, whose note it keeps."""
    assert evaluate.main(EvaluateConfig(str(base), episodes=2, num_envs=2, num_workers=0)) == 0
    return base


@pytest.mark.long
def test_no_success_is_stored_listed_or_published(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The note of an evaluation, `runs`, the bundle and the page on the Hub state the mean return."""
    note = read_json(measured / "policy" / "evaluation.json")
    assert not {"k", "wilson95"} & set(note)
    assert (note["n"], note["reports_success"]) == (2, False)
    assert robo_rl(["runs", f"path={measured}"]) == 0
    assert f"mean return {note['mean_return']:.4g}" in capsys.readouterr().out
    bundle = tmp_path / "bundle"
    assert robo_rl(["export", f"policy={measured}", f"out={bundle}"]) == 0
    assert rr.load_bundle(bundle).manifest["measured"]["mean_return"] == note["mean_return"]
    for folder in (measured, bundle):
        page = card(contents_of(folder), folder, "me/mine")
        assert f"Mean return {note['mean_return']:.4g} in 2 episodes of {ENV}" in page
        assert "| policy |" not in page


def test_a_head_is_compared_with_its_teacher_by_returns(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["steps=2", "rollout_steps=100", "rounds=0", "batch_size=4", "eval_episodes=2", "num_envs=2"]
    assert robo_rl(["distill", f"teacher={measured}", f"out={tmp_path / 'head'}", *small]) == 0
    said = capsys.readouterr().out
    assert "teacher on the same episodes: mean return" in said
    assert "%" not in said
    result = read_json(tmp_path / "head" / "results.json")["head"]
    assert (result["rate"], result["success"]) == (None, None)
    assert robo_rl(["runs", f"path={tmp_path / 'head'}"]) == 0
    assert "mean return" in capsys.readouterr().out


@pytest.mark.parametrize("trained", [ENV, "gym/MountainCarContinuous-v0"])
def test_a_head_measured_in_its_own_environment_keeps_a_note(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: str
) -> None:
    """Also where the command names that environment; not in another one."""
    spec = trained_env_spec(base / "policy")
    monkeypatch.setattr("robo_rl.apps.distill.trained_env_spec", lambda folder: replace(spec, name=trained))
    small = ["steps=2", "rollout_steps=100", "rounds=0", "batch_size=4", "eval_episodes=2", "num_envs=2"]
    out = tmp_path / "head"
    assert robo_rl(["distill", f"teacher={base}", f"env={ENV}", f"out={out}", *small]) == 0
    assert (out / "policy" / "evaluation.json").is_file() == (trained == ENV)


def test_a_policy_evaluated_in_its_own_environment_keeps_a_note(base: Path, tmp_path: Path) -> None:
    """Also where the command names that environment."""
    run = tmp_path / "run"
    shutil.copytree(base, run, ignore=shutil.ignore_patterns("evaluation.json"))
    assert evaluate.main(EvaluateConfig(str(run), env=ENV, episodes=1, num_envs=1, num_workers=0)) == 0
    assert (run / "policy" / "evaluation.json").is_file()


def test_training_neither_logs_nor_misses_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten failures of a base are reported, ten episodes of an unknown outcome are not."""
    said = list[str]()
    watch = TrainingWatch(has_base=True, demos=True, sparse=False, limit_steps=100, say=said.append)
    silent = [CollectedEpisode(i, False, 50, -100.0, reported=False) for i in range(10)]
    watch.add(silent, of_base=True, base_done=True, progress=0.1)
    assert not said
    watch.load_state_dict(watch.state_dict())
    assert watch.history.base.unreported == 10
    episodes = RunningEpisodes(Lanes.of(torch.tensor([0, 1])))
    info = {"episode_seed": torch.tensor([5, 6]), "success": torch.tensor([False, False])}
    for reported in ([0.0, 1.0], None):
        known = {} if reported is None else {"reports_success": torch.tensor(reported)}
        episodes.end(Lanes.of(torch.tensor([0, 1])), info | known)
    assert [each.reported for each in episodes.drain()] == [False, True, True, True]


def test_a_run_from_scratch_shows_returns_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`finetune`, its files, and the plot of `compare`."""
    words = ["finetune", "method=sac", f"env={ENV}", "env_steps=60", "method.base_steps=30", "num_envs=2"]
    words += ["num_workers=0", "eval_every=30", "eval_episodes=1", "final_episodes=2", "device=cpu"]
    for name in ("a", "b"):
        assert robo_rl([*words, "method.learner.hidden=[8]", f"out={tmp_path / name}"]) == 0
    results = read_json(tmp_path / "a" / "results.json")
    assert results["policy"]["rate"] is None
    assert all(set(stage["after"]) == {"mean_return", "n", "sd"} for stage in results["stages"])
    assert not read_json(tmp_path / "a" / "curve.json")["reports_success"]
    assert "success" not in (tmp_path / "a" / "metrics.jsonl").read_text()
    capsys.readouterr()
    assert robo_rl(["compare", str(tmp_path / "a"), str(tmp_path), f"out={tmp_path / 'plot'}"]) == 0
    assert "%" not in capsys.readouterr().out
    picture = (tmp_path / "plot.svg").read_text()
    assert "Mean return" in picture
    assert "%</text>" not in picture


def test_auto_chooses_by_returns(base: Path, data: Path, tmp_path: Path) -> None:
    """The default method of `finetune`: races, stages and the decision state returns, and no success."""
    given = ["finetune", f"base={base}", f"demos={data}", "num_workers=0", "final_episodes=2", "device=cpu"]
    words = ["env_steps=1500", "num_envs=16", "max_episode_steps=15", f"out={tmp_path / 'run'}"]
    assert robo_rl([*given, *words]) == 0
    results = read_json(tmp_path / "run" / "results.json")
    assert any("mean return" in said and "same episodes" in said for said in results["decided_by"])
    assert not any("%" in said for said in results["decided_by"])
    (stage,) = results["stages"]
    assert stage["after"]["n"] > 10


@pytest.mark.long
def test_stages_choose_by_returns(base: Path, data: Path, tmp_path: Path) -> None:
    """The same with few environments."""
    given = ["finetune", f"base={base}", f"demos={data}", "num_workers=0", "final_episodes=2", "device=cpu"]
    words = ["env_steps=800", "num_envs=2", "max_episode_steps=15", f"out={tmp_path / 'run'}"]
    assert robo_rl([*given, *words]) == 0
    results = read_json(tmp_path / "run" / "results.json")
    assert not any("%" in said for said in results["decided_by"])
    assert results["stages"]
    assert all("mean_return" in stage["before"] for stage in results["stages"])


def result(returns: Sequence[float]) -> EvalResult:
    """Episodes without a report of success."""
    count = len(returns)
    none, length = (False,) * count, (9,) * count
    return EvalResult(
        tuple(range(count)), none, length, tuple(returns), None, 9, 1.0, 1.0, reports_success=False
    )


def test_policies_are_compared_by_their_returns() -> None:
    """A gain in each of eight episodes is significant, though no episode succeeds."""
    base, tuned = result([-10.0 * i for i in range(8)]), result([-10.0 * i + 1.0 for i in range(8)])
    found = "the first policy's mean return is higher by 1; paired permutation test p = 0.008"
    assert evaluate.verdict(tuned, base) == f"same 8 episodes: {found}: a significant difference"
    assert "lower by 1; paired permutation test" in evaluate.verdict(base, tuned)
    longer, better = result([-10.0 * i for i in range(40)]), result([-10.0 * i + 1.0 for i in range(40)])
    assert evaluate.verdict(better, longer).endswith("permutation test p < 0.001: a significant difference")
    assert evaluate.verdict(base, base).endswith("p = 1.00: no significant difference")


@pytest.mark.parametrize(
    ("gain", "p", "words"),
    [
        (1.0, 0.01, "robo-rl distill teacher=runs/ft out=runs/head"),
        (1.0, 0.2, "robo-rl evaluate policy=runs/ft against=runs/base episodes=400"),
        (-1.0, 0.01, "the result is not better than the base"),
    ],
)
def test_the_next_step_follows_the_returns(gain: float, p: float, words: str) -> None:
    """No base is said to need more demonstrations for a success that its environment does not know."""
    config = FinetuneVerb(out="runs/ft", base="runs/base", method=MethodConfig(name="steering"))
    rate = result([0.0]).rate
    said = after_tuning(config, Path("runs/ft"), rate, rate, ReturnTest(-gain, p))
    assert said.startswith(words)
    assert "demonstrations" not in said
