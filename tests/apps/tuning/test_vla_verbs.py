"""Verbs of a vision-language-action policy in a suite of two tasks, through the command line."""

from __future__ import annotations

import copy
import json
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from policies.checkpoint import load_policy, save_policy
from policies.deploy.bundle import load_bundle
from policies.instructed_policy import InstructedPolicy
from policies.vla.policy import VlaPolicy
from robo_rl.apps import export, finetune
from robo_rl.apps import run as run_verb
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.tuning.auto import imitation, plan, stages, verb
from robo_rl.apps.tuning.auto.plan import StepBudget
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.conf.schema import ExportConfig
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data.store import DatasetWriter
from robo_rl.rl.mix import MixConfig
from robo_rl.runs.learning_curve import TuningResult
from robo_rl.runs.run_dir import RunDir
from sim.adapters.metaworld_words import CAMERAS, SharedRenderer
from sim.registry import make_env
from tests.policies.small_vla import SPEC, seen, sides_env, small_vla, token_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

PAIR = "metaworld/faucet-open-v3+faucet-close-v3"
TASKS = ["faucet-open-v3", "faucet-close-v3"]
SHORT = ["max_episode_steps=4", "num_envs=2", "eval_episodes=2", "final_episodes=2", "eval_every=0"]


@pytest.fixture(autouse=True)
def black_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures without OpenGL, which takes longer than the rest."""
    black = np.zeros((64, 64, 3), np.uint8)
    monkeypatch.setattr(SharedRenderer, "__init__", lambda self, *args: None)
    monkeypatch.setattr(SharedRenderer, "shots", lambda self, simulation: dict.fromkeys(CAMERAS, black))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that was not trained."""
    folder = tmp_path_factory.mktemp("vla")
    with closing(make_env(PAIR, 1)) as env:
        spec = env.spec.for_policies()
    save_policy(folder / "policy", small_vla(spec=spec, steps=2))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["method=steering", "method.execute=2"],
        ["method=residual", "method.map.per_chunk=true", "method.mix.demo=0", "method.mix.online=1",
         "method.learner.explore_correlation=0"],
        ["method=dsrl_na", "method.execute=2"],
        ["method=flow_sde", "method.ppo.rollout=8", "method.ppo.minibatches=1"],
        ["method=ppo_tokens", "method.ppo.rollout=8", "method.ppo.minibatches=1"],
    ],
    ids=lambda words: words[0].partition("=")[2],
)  # fmt: skip
def test_finetune_reports_every_task(base: Path, tmp_path: Path, words: list[str]) -> None:
    if "tokens" in words[0]:
        spec = load_policy(base / "policy").env  # type: ignore[attr-defined]
        base = tmp_path / "tokens"
        save_policy(base / "policy", token_vla(spec=spec))
    rollouts = "ppo.rollout=8" in words[1]
    steps = ["env_steps=32", *([] if rollouts else ["method.base_steps=16"])]
    small = ["method.learner.hidden=[8]", *([] if rollouts else ["method.learner.batch=4"])]
    if "residual" in words[0]:
        small.append("method.burn_in=2")
    assert (
        robo_rl(["finetune", f"base={base}", f"out={tmp_path / 'run'}", *words, *steps, *small, *SHORT]) == 0
    )
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    for who in ("policy", "base"):
        assert [results["tasks"][who][task]["n"] for task in TASKS] == [1, 1]
    load_policy(tmp_path / "run" / "policy")


@pytest.mark.slow
def test_distill_reports_every_task(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The head is a policy of the same kind, with one transition; it is exported next."""
    few = ["steps=2", "rounds=1", "rollout_steps=100", "round_steps=100", "batch_size=4", "num_envs=2"]
    out = tmp_path / "head"
    words = [f"teacher={base}", f"out={out}", "max_episode_steps=4", "eval_episodes=2"]
    assert robo_rl(["distill", *words, *few]) == 0
    head = load_policy(out / "policy")
    assert isinstance(head, VlaPolicy)
    assert head.process.steps == 1
    tasks = json.loads((out / "results.json").read_text())["tasks"]
    assert {who: [rates[task]["n"] for task in TASKS] for who, rates in tasks.items()} == {
        "head": [1, 1],
        "teacher": [1, 1],
    }
    assert robo_rl(["distill", f"teacher={out}", f"out={tmp_path / 'again'}"]) == 2
    assert "already decides in a single step" in capsys.readouterr().err


@pytest.mark.parametrize(("memory", "time"), [(0, "about a minute"), (2, "several minutes")])
def test_export_names_its_time_after_its_checks(
    memory: int, time: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory makes the graphs larger. What is refused is refused before a sentence on the time."""
    save_policy(tmp_path / "policy", small_vla(memory=memory), {})
    policy, said = str(tmp_path / "policy"), list[str]()
    with pytest.raises(ConfigError, match="knows no word"):
        export.write(ExportConfig(policy, str(tmp_path / "bundle"), instruction="zzz qqq"), said.append)
    with pytest.raises(ConfigError, match="exists and is not a bundle"):
        export.write(ExportConfig(policy, policy), said.append)
    assert not said

    def graphs(*_: object, **__: object) -> None:
        raise RoboRLError("enough")

    monkeypatch.setattr(export, "write_bundle", graphs)
    with pytest.raises(RoboRLError, match="enough"):
        export.write(ExportConfig(policy, str(tmp_path / "bundle")), said.append)
    assert [f"{time} of one core." in each for each in said] == [True]


@pytest.mark.slow
def test_export_run_and_evaluate(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bundle names cameras, words and rates; `run` prints the times of prefix and head apart."""
    bundle, few = str(tmp_path / "bundle"), ["max_episode_steps=4", "episodes=2"]
    assert robo_rl(["export", f"policy={base}", f"out={bundle}", "instruction=open the tap"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Writing the graphs of prefix and head")  # before a minute of silence
    assert "prefix of top, corner and the instruction; head at 80 Hz" in said
    assert robo_rl(["run", f"bundle={bundle}", *few]) == 0
    said = capsys.readouterr().out
    assert "prefix: 2 runs" in said  # black pictures, so it runs for the words of each episode
    assert "head: 4 runs" in said  # four steps each, with chunks of two
    assert robo_rl(["evaluate", f"policy={bundle}", *few, "num_envs=2", "num_workers=0"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {task}: success 0/1" in said for task in TASKS)
    assert robo_rl(["evaluate", f"policy={bundle}", *few, "instruction=close the tap", "num_envs=2"]) == 0
    made, policy = load_bundle(Path(bundle)), small_vla()
    silent = replace(made.env, obs={key: each for key, each in made.env.obs.items() if key != INSTRUCTION})
    assert run_verb.instructed_policy(policy, made, made.env) is policy
    assert isinstance(run_verb.instructed_policy(policy, made, silent), InstructedPolicy)
    wordless = replace(made, instruction=None)
    with pytest.raises(ConfigError, match=r"gives none\. Export it with instruction="):
        run_verb.instructed_policy(policy, wordless, silent)


@pytest.mark.slow
def test_auto_refers_to_its_base(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base is not copied into a stage that starts from it."""
    recipe = cache(stages.stage_method)

    def shrunk(name: str) -> MethodConfig:
        method = copy.deepcopy(recipe(name))
        if name == "auto":
            return method
        method.learner.hidden, method.learner.batch, method.burn_in = [8], 4, 2
        method.env_steps, method.replay_capacity = min(method.env_steps, 32), 100
        return method

    for module in (plan, stages):
        monkeypatch.setattr(module, "stage_method", shrunk)
    monkeypatch.setattr(plan, "LEAST_STEPS", 16)
    monkeypatch.setattr(plan, "ROUND_STEPS", 32)
    out = tmp_path / "auto"
    words = ["method=auto", "env_steps=64", f"out={out}"]
    assert robo_rl(["finetune", f"base={base}", *words, *SHORT]) == 0
    assert (out / "residual" / "run").is_dir()
    assert not (out / "residual" / "base").exists()
    assert json.loads((out / "results.json").read_text())["tasks"]


def test_a_memory_and_demonstrations_leave_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before the run's folder is created; without their share the run starts."""
    DatasetWriter.create(tmp_path / "data", SPEC).close()
    monkeypatch.setattr(finetune, "load_base", lambda _: small_vla(memory=2))
    where = {"base": "runs/base", "demos": str(tmp_path / "data"), "out": str(tmp_path / "run")}
    config = FinetuneVerb(env="metaworld/reach-v3", method=plan.stage_method("residual"), **where)
    with pytest.raises(ConfigError, match=r"no memory of decisions.* set method\.mix\.demo=0"):
        finetune._finetune(config)
    assert not (tmp_path / "run").exists()

    def started(*_: object) -> None:
        raise RoboRLError("enough")

    monkeypatch.setattr(finetune, "keep_tuning_inputs", started)
    config.method.mix = MixConfig()
    with pytest.raises(RoboRLError, match="enough"):
        finetune._finetune(config)


@pytest.mark.parametrize("lanes", [3, 16])
def test_auto_replays_no_demonstrations_where_the_base_remembers(
    lanes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datasets hold no memory. `demos` may be the successes that the stages recorded."""
    base, found = small_vla(memory=2), list[MethodConfig]()
    save_policy(tmp_path / "base" / "policy", base)
    monkeypatch.setattr(stages, "make_env", lambda *_, **__: sides_env(1))
    where = {"base": str(tmp_path / "base"), "demos": str(tmp_path / "data"), "out": str(tmp_path / "run")}
    config = FinetuneVerb(env="toy", num_envs=lanes, **where)

    def trained(config: FinetuneVerb, method: MethodConfig, *_: object, **__: object) -> TuningResult:
        found.append(method)
        raise RoboRLError("enough")

    for module in (stages, verb):
        monkeypatch.setattr(module, "run_method", trained)
    with RunDir.create(config.out, config) as run:
        course = stages._AutoRun(config, base, run, stages.Stage(base, 1.0, None), StepBudget(400, lanes))
        train = course.correct if lanes == 3 else partial(verb.train_in_lanes, config, base, run)
        with pytest.raises(RoboRLError, match="enough"):
            train()
    assert (found[0].mix.online, found[0].mix.demo) == (1.0, 0.0)


def test_its_successes_are_imitated_by_a_policy_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imitation, "UPDATES", 2)
    monkeypatch.setattr(imitation, "VLA_BATCH", 2)
    writer, obs = DatasetWriter.create(tmp_path / "data", SPEC), seen("right", "right", "right")
    with writer.episode(task="right") as episode:
        for row in range(3):
            episode.add({key: value[row, 0].numpy() for key, value in obs.items()}, np.ones(2, np.float32))
        episode.commit(success=True)
    teacher = small_vla()
    made = imitation.imitate(teacher, None, [tmp_path / "data"], tmp_path / "stage", 0)
    assert made is not None
    assert isinstance(made[0], VlaPolicy)
    assert made[0].shape == teacher.shape
    assert (made[0].chunk, made[0].execute) == (teacher.chunk, teacher.execute)
