"""`robo-rl finetune` and `distill` as called by users; killed or stopped ones run in their own process."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policies.deploy.bundle import load_bundle
from policies.tuned.steered import SteeredPolicy
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.tuning.check import other_task, too_often
from robo_rl.apps.tuning.loop import Best, _Training
from robo_rl.apps.tuning.report import steps_in_words
from robo_rl.apps.tuning.start import engine_device, training_episode_limit, with_planning_interval
from robo_rl.apps.tuning.watch import TrainingWatch
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.action_map import LatentMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import load_state
from robo_rl.core.text.instruction import TASK_NOTE
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.rl.loop import FinetuneConfig
from robo_rl.runs.run_dir import RunDir
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC

pytest.importorskip("metaworld", reason="needs MetaWorld: pip install 'robo-rl[sim]'")

ROOT = Path(__file__).resolve().parents[3]
STEPS = ("env_steps=300", "method.base_steps=80", "method.burn_in=20", "method.learner.hidden=[16]")
QUICK = (
    "num_envs=2",
    "eval_every=150",
    "eval_episodes=2",
    "final_episodes=2",
    "max_episode_steps=40",
    "checkpoint_every=50",
)


def started(arguments: list[str], **pipes: int) -> subprocess.Popen[str]:
    """The verb in a process of its own."""
    here = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "robo_rl.apps.cli.main", *arguments]
    return subprocess.Popen(words, cwd=ROOT, env=here, text=True, stdout=subprocess.DEVNULL, **pipes)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(demonstrations, base policy) of the fastest task."""
    folder = tmp_path_factory.mktemp("finetune")
    data, out = folder / "data", folder / "base"
    few = ["episodes=3", "num_envs=2", "num_workers=0"]
    assert robo_rl(["collect", "env=metaworld/reach-v3", f"out={data}", *few]) == 0
    assert (
        robo_rl(["train", f"data={data}", f"out={out}", "steps=60", "net.width=32", "process.steps=2"]) == 0
    )
    return data, out


def finetune(base: tuple[Path, Path], out: Path, method: str, *more: str) -> list[str]:
    given = {word.partition("=")[0] for word in more}
    return [
        "finetune",
        f"base={base[1]}",
        f"demos={base[0]}",
        f"out={out}",
        f"method={method}",
        *(word for word in (*STEPS, *QUICK) if word.partition("=")[0] not in given),
        *more,
    ]


def test_training_episodes_end_after_a_multiple_of_the_demonstrations(base: tuple[Path, Path]) -> None:
    """1.6 times the median demonstration, rounded up, at most the task's own limit; none without
    demonstrations.
    """
    config = FinetuneVerb(out="unused", base=str(base[1]), demos=str(base[0]))
    demos = EpisodeStore(base[0])
    middle = sorted(episode.frames for episode in demos)[1]
    method = replace(config.method, episode_limit_factor=1.6)
    assert training_episode_limit(config, method, demos) == math.ceil(1.6 * middle)
    assert training_episode_limit(config, replace(method, episode_limit_factor=100.0), demos) == 200
    assert training_episode_limit(config, method, None) is None
    config.max_episode_steps = 7
    assert training_episode_limit(config, method, demos) == 7


@pytest.mark.long
@pytest.mark.parametrize("name", ["dsrl_na", "qc"])
def test_methods_of_chunks_learn_from_demonstrations(
    name: str, base: tuple[Path, Path], tmp_path: Path
) -> None:
    """From the command line to a policy: the replay holds a chunk from every demonstrated step on."""
    out = tmp_path / name
    assert robo_rl([*finetune(base, out, name), "method.map.candidates=3", "method.execute=4"]) == 0
    found = RunDir.open(out).newest_intact()
    assert found is not None
    stored = load_state(found[1])["tuner"]["mix"]["demo"]
    assert int(stored["head"]) == sum(episode.frames for episode in EpisodeStore(base[0]))
    assert set(stored["steps"].unique().tolist()) == {1.0, 2.0, 3.0, 4.0}


def test_the_slowest_task_sets_the_limit_of_training_episodes(
    base: tuple[Path, Path], tmp_path: Path
) -> None:
    """Medians 4 and 10: a limit of the median of all, 5, would end every episode of the second task."""
    demos = EpisodeStore(base[0])
    writer = DatasetWriter.create(tmp_path / "data", demos.spec)
    obs = {key: next(iter(demos)).obs(key)[0] for key in demos.spec.obs}
    for task, frames in (("quick", 4), ("quick", 4), ("quick", 5), ("slow", 9), ("slow", 11)):
        with writer.episode(info={TASK_NOTE: task}) as episode:
            for _ in range(frames):
                episode.add(obs, np.zeros(4, np.float32))
            episode.commit(success=True)
    config = FinetuneVerb(out="unused", base=str(base[1]))
    method = replace(config.method, episode_limit_factor=1.5)
    assert training_episode_limit(config, method, EpisodeStore(tmp_path / "data")) == 15


def same_files(one: Path, other: Path) -> None:
    """Weights and all logged values, bit for bit."""
    for name in ("policy/weights.safetensors", "metrics.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    curves = [json.loads((run / "curve.json").read_text()) for run in (one, other)]
    assert curves[0]["rates"] == curves[1]["rates"]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_killed_and_resumed_equals_uninterrupted(
    base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Promise 7 with a real second process and SIGKILL, after a checkpoint of the online phase."""
    assert robo_rl(finetune(base, tmp_path / "whole", "residual")) == 0
    assert "exact McNemar" in capsys.readouterr().out

    killed = tmp_path / "killed"
    process = started(finetune(base, killed, "residual"), stderr=subprocess.DEVNULL)
    deadline_s = time.monotonic() + 120.0
    while not any(int(p.name) >= 150 for p in (killed / "checkpoints").glob("[0-9]*")):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline_s
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "policy").exists()
    assert robo_rl(finetune(base, killed, "residual", "resume=true")) == 0
    same_files(tmp_path / "whole", killed)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_ctrl_c_saves_and_prints_how_to_continue(
    base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 130, a checkpoint, one sentence; the resumed run can be distilled."""
    out = tmp_path / "run"
    given = finetune(base, out, "steering", "checkpoint_every=100000")
    process = started(given, stderr=subprocess.PIPE)
    log = out / "metrics.jsonl"
    while process.poll() is None and not (log.exists() and "train/success" in log.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "resume=true" in said
    (at,) = (int(folder.name) for folder in (out / "checkpoints").glob("[0-9]*"))
    short = ["episodes=1", "num_envs=1", "num_workers=0", "max_episode_steps=5"]
    assert robo_rl(["evaluate", f"policy={out}@{at}", *short]) == 0
    capsys.readouterr()
    assert robo_rl(["evaluate", f"policy={out}", *short]) == 2
    assert f"or give {out}@{at} for its newest checkpoint." in capsys.readouterr().err
    assert robo_rl([*given, "resume=true"]) == 0
    few = ["steps=50", "rounds=1", "rollout_steps=200", "round_steps=100", "eval_episodes=4", "net.width=16"]
    head = ["distill", f"teacher={out}", f"out={tmp_path / 'head'}", "max_episode_steps=40", *few]
    assert robo_rl(head) == 0
    assert "teacher on the same episodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["finetune", "out=x", "base=/nowhere"], "/nowhere does not exist"),
        (["finetune", "out=x"], "learn from scratch by env=<environment> and method=sac (or td3)."),
        (["finetune", "out=x", "env=gym/a:b-v0"], "learn from scratch by method=sac (or td3)."),
        (
            ["finetune", "out=x", "env=gym/a:b-v0", "method=sac", "method.compare_share=0.1", "env_steps=9"],
            "there is no base to compare with: set method.compare_share=0",
        ),
        (
            ["finetune", "out=x", "env=gym/a:b-v0", "method=sac", "method.base_is_enough=50", "env_steps=9"],
            "there is no base to compare with: set method.compare_share=0",
        ),
        (["finetune", "out=x", "env=gym/a:b-v0"], "method=auto (the default) improves a policy: give base="),
        (["finetune", "out=x", "method=residul"], "residual"),
        (["finetune", "out=x", "method.lerner.tau=1"], "learner"),
        (
            ["finetune", "out=x", "env=gym/Pendulum-v1", "method=sac", "env_steps=200"],
            "env_steps=200 leaves no steps for learning: random actions fill the first 10000 (base_steps).",
        ),
        (["distill", "out=x", "teacher=/nowhere"], "/nowhere does not exist"),
    ],
)
def test_mistakes_print_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was found, a remedy, a non-zero exit code, no traceback and nothing written."""
    assert robo_rl([argument.replace("out=x", f"out={tmp_path / 'x'}") for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert not (tmp_path / "x").exists()


def test_execute_can_differ_from_that_of_the_base() -> None:
    """Same weights, other `execute`; the base keeps its own, and a chunk is never exceeded."""
    base = flow_policy(SPEC)
    again = with_planning_interval(base, 1)
    assert (again.execute, base.execute) == (1, 2)
    assert all(one is other for one, other in zip(again.parameters(), base.parameters(), strict=True))
    with pytest.raises(ConfigError, match="chunks of 4"):
        with_planning_interval(base, 5)
    steered = SteeredPolicy(base, make_actor(ActorConfig("gaussian", 4, 4)), LatentMap(4, 1, 1.5))
    with pytest.raises(ConfigError, match=r"method\.execute=null"):
        with_planning_interval(steered, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["method=residual"], "method=residual replays demonstrations: give demos=<dataset>"),
        (
            ["method=dsrl_sac", "demos=DATA", "method.mix.demo=0.5", "method.mix.online=0.5"],
            "that behind a demonstrated action is unknown",
        ),
        (["demos=nowhere"], "nowhere does not exist"),
        (["method=rlif", "demos=DATA", "method.intervene=none"], "set method.intervene=expert"),
        (["method=rlif", "demos=DATA", "env=gym/Hopper-v5"], "which 'gym/Hopper-v5' does not have"),
        (["method.learner.tau=0.1"], "method.learner.tau=0.1 cannot be used: method=auto (the default)"),
        (["launcher=ray"], "method=auto (the default) runs several methods"),
        (["method=steering", "method.mix.online=0.7"], "sum to 1, found mix.online=0.7"),
        (["method=wsrl", "init=none", "demos=DATA"], "give init=<run>"),
        (["init=nowhere"], "nowhere does not exist"),
        (["out=BASE"], "already holds a run"),
        (["resume=true"], "Start it without resume=true"),
        (["device=gpu"], "expected: auto | cpu | cuda | cuda:<number>"),
        (["device=cuda:99"], "torch sees"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_before_anything_is_loaded(
    arguments: list[str],
    words: str,
    base: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No policy is loaded and no folder is created; the message names the setting to give."""
    for module in ("finetune", "tuning.auto.verb"):
        loads = f"robo_rl.apps.{module}.load_base"
        monkeypatch.setattr(loads, lambda config: pytest.fail("the base was loaded"))
    names = {"DATA": str(base[0]), "BASE": str(base[1])}
    given = [word.replace("DATA", names["DATA"]).replace("BASE", names["BASE"]) for word in arguments]
    out = [] if arguments == ["out=BASE"] else [f"out={tmp_path / 'x'}"]
    assert robo_rl(["finetune", f"base={base[1]}", *out, *given]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_demonstrations_of_another_task_leave_no_run(
    base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their contract is compared with the base before the run's folder is created."""
    DatasetWriter.create(tmp_path / "other", SPEC).close()
    words = [f"base={base[1]}", f"out={tmp_path / 'x'}", f"demos={tmp_path / 'other'}"]
    for method in ("residual", "auto"):
        assert robo_rl(["finetune", *words, f"method={method}"]) == 2
        assert "but the policy was trained in metaworld/reach-v3" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("gym/Pendulum-v1", "but the policy was trained in metaworld/reach-v3"),
        ("metaworld/reach-v3", "env_steps=50 leaves no steps for learning: the base alone executes"),
    ],
)
def test_a_base_of_another_task_is_said_before_too_few_steps(
    env: str, words: str, base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More steps would not help. Neither leaves a run."""
    given = [f"base={base[1]}", f"out={tmp_path / 'x'}", "method=steering", "env_steps=50"]
    assert robo_rl(["finetune", *given, f"env={env}"]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_demonstrations_of_a_similar_task_are_named(base: tuple[Path, Path], tmp_path: Path) -> None:
    """The same shapes hide that they are of another task; other options of the same task are fine."""
    spec = EpisodeStore(base[0]).spec
    for name, said in (("metaworld/push-v3", True), ("metaworld/reach-v3:engine=x", False)):
        DatasetWriter.create(tmp_path / str(said), replace(spec, name=name)).close()
        config = FinetuneVerb(out="unused", base=str(base[1]), demos=str(tmp_path / str(said)))
        assert (
            "recorded in metaworld/push-v3, but this run learns metaworld/reach-v3" in other_task(config)
        ) is said
        assert other_task(config).endswith("give some of metaworld/reach-v3, or leave demos= out.") is said


def test_demonstrations_that_the_base_cannot_read_are_refused_without_a_warning(
    base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal says all, and what to give instead of a dataset."""
    spec = EpisodeStore(base[0]).spec
    wider = {key: replace(array, shape=(50,)) for key, array in spec.obs.items()}
    DatasetWriter.create(tmp_path / "wider", replace(spec, name="gym/own:Dock-v0", obs=wider)).close()
    config = FinetuneVerb(out="unused", base=str(base[1]), demos=str(tmp_path / "wider"))
    assert other_task(config) == ""
    words = [f"base={base[1]}", f"out={tmp_path / 'x'}", f"demos={tmp_path / 'wider'}"]
    assert robo_rl(["finetune", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("Give a dataset of the task that it was trained for.\n")


def test_empty_demonstrations_leave_no_run(
    base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence before the run's folder is created."""
    DatasetWriter.create(tmp_path / "empty", EpisodeStore(base[0]).spec).close()
    words = [f"base={base[1]}", f"out={tmp_path / 'x'}", f"demos={tmp_path / 'empty'}"]
    assert robo_rl(["finetune", *words]) == 2
    assert "holds no complete episode. Record some first" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("residual", "Record successful ones, or set method.mix.demo=0 method.mix.online=1."),
        ("auto", "Record successful ones, or leave out demos=."),
    ],
)
def test_demonstrations_that_all_failed_leave_no_run(
    method: str, words: str, base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of method=auto, which would train stages without them first."""
    spec = EpisodeStore(base[0]).spec
    obs = {key: np.zeros(array.shape, array.dtype) for key, array in spec.obs.items()}
    writer = DatasetWriter.create(tmp_path / "failed", spec, stamps=())
    with writer.episode() as episode:
        episode.add(obs, np.zeros(spec.action.dim, np.float32), reward=0.0)
        episode.commit(success=False, final_obs=obs)
    writer.close()
    given = [f"base={base[1]}", f"out={tmp_path / 'x'}", f"demos={tmp_path / 'failed'}"]
    assert robo_rl(["finetune", *given, f"method={method}"]) == 2
    said = capsys.readouterr().err
    assert "None of the 1 demonstrations succeeded" in said
    assert words in said
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["method=residual", "method.progress_gripper=9"], "method.progress_gripper=9 names no action"),
        (["method=dppo", "demos=OTHER"], "but the policy was trained in metaworld/reach-v3"),
        (["method=dppo", "demos=FEW"], "needs two successful demonstrations or more, found 0"),
    ],
)
def test_demonstrations_that_teach_no_progress_leave_no_run(
    changes: list[str],
    words: str,
    base: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also of a method that replays none."""
    for name, spec in (("OTHER", SPEC), ("FEW", EpisodeStore(base[0]).spec)):
        DatasetWriter.create(tmp_path / name, spec).close()
    given = [f"base={base[1]}", f"out={tmp_path / 'x'}", f"demos={base[0]}", "method.progress_weight=0.5"]
    changed = [word.replace("demos=", f"demos={tmp_path}/") for word in changes]
    given = [word for word in given if word[:6] != "demos=" or "demos=" not in " ".join(changes)]
    assert robo_rl(["finetune", *given, *changed]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_learner_that_does_not_fit_its_map_leaves_no_run(
    base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings that contradict each other are refused before the run's folder is created."""
    words = [f"base={base[1]}", f"out={tmp_path / 'x'}", "method=steering", "method.learner.gate=true"]
    assert robo_rl(["finetune", *words]) == 2
    assert "method.learner.gate=false" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def watch() -> TrainingWatch:
    """A watch on a training without a base."""
    return TrainingWatch(has_base=False, sparse=True, limit_steps=None)


class _Working:
    """A tuner whose only step runs in another process."""

    phase, env_steps, offline, burned_in, done = "burn_in", 0, 0, 0, False
    config = FinetuneConfig(100)

    def advance(self) -> list[Any]:
        busy = "import time\nwhile time.process_time() < 0.5: pass"
        subprocess.run([sys.executable, "-S", "-c", busy], check=True)
        return []

    def state_dict(self) -> dict[str, Any]:
        return {}


def test_cpu_seconds_include_the_workers() -> None:
    """With num_workers= the simulation runs in other processes, whose time counts as training."""
    config = FinetuneVerb(out="unused", eval_every=0)
    session: Any = SimpleNamespace(tuner=_Working(), seed_root=("train", 0))
    nothing: Any = None
    lanes: Any = SimpleNamespace(state_dict=dict, learn=lambda episodes: None)
    training = _Training(config, session, lanes, nothing, nothing, watch(), print, config.method)
    training.best = Best(0, (0.0, 0.0), {})  # evaluated already
    training.advance()
    assert training.state_dict()["progress"]["train_cpu_s"] >= 0.45


def test_frequent_evaluations_of_many_environments_are_pointed_out() -> None:
    """By default both come every 2,000 steps, less than one step of 4,096 environments."""
    said = too_often(FinetuneVerb(out="unused", num_envs=4096))
    assert said.endswith("Better: eval_every=2048000 checkpoint_every=2048000")
    assert not too_often(FinetuneVerb(out="unused", num_envs=64))
    assert not too_often(FinetuneVerb(out="unused", num_envs=4096, eval_every=0, checkpoint_every=10_000_000))


def test_training_ends_with_its_wall_time() -> None:
    """With max_wall_s=0 the first step is the last one, and it is evaluated."""
    config, said = FinetuneVerb(out="unused", eval_every=0, max_wall_s=0.0), list[str]()
    tuner: Any = SimpleNamespace(
        phase="online",
        env_steps=0,
        offline=0,
        burned_in=0,
        done=False,
        advance=list,
        config=FinetuneConfig(100),
    )
    session: Any = SimpleNamespace(tuner=tuner, seed_root=("train", 0))
    nothing: Any = None
    lanes: Any = SimpleNamespace(learn=lambda episodes: None)
    training = _Training(config, session, lanes, nothing, nothing, watch(), said.append, config.method)
    training.best = Best(0, (0.0, 0.0), {})
    training.curve.env_steps.append(tuner.env_steps)
    assert not training.done
    training.advance()
    assert training.done
    assert said == ["max_wall_s: training ends after 0 of 100 steps"]


@pytest.mark.parametrize(
    ("has_base", "words"),
    [
        (True, "600 steps (200 of the base alone, 400 of learning)"),
        (False, "600 steps (200 before learning, 400 of learning)"),
    ],
)
def test_steps_of_a_run_from_scratch_name_no_base(has_base: bool, words: str) -> None:
    outcome: Any = SimpleNamespace(env_steps=600, steps={"base": 200, "training": 400, "selection": 0})
    assert steps_in_words(outcome, has_base) == words


@pytest.mark.long
def test_returns_are_printed_without_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pendulum reports no success, only negative rewards: 0 of 2 would be wrong, also in `robo-rl runs`."""
    out = tmp_path / "sac"
    few = ["eval_every=0", "eval_episodes=2", "final_episodes=2", "num_envs=1", "num_workers=0"]
    small = ["env_steps=600", "method.base_steps=200", "method.learner.hidden=[16]"]
    assert robo_rl(["finetune", "method=sac", "env=gym/Pendulum-v1", f"out={out}", *small, *few]) == 0
    said = capsys.readouterr()
    assert "Advice" not in said.out
    mean = sum(json.loads((out / "results.json").read_text())["policy"]["returns"]) / 2
    assert f"CPU time: mean return {mean:.4g} [" in said.out
    assert "0 %" not in said.out
    assert robo_rl(["runs", f"path={out}"]) == 0
    assert capsys.readouterr().out.split()[:5] == [str(out), "finetune", "mean", "return", f"{mean:.4g}"]
    assert "return -" in said.err  # of the progress bar
    for noise in ("", "zero"):  # this policy takes no noise, so its success holds for both
        words = [
            f"policy={out}",
            f"out={tmp_path / f'bundle{noise}'}",
            *([f"noise={noise}"] if noise else []),
        ]
        assert robo_rl(["export", *words]) == 0
        assert "unknown" not in capsys.readouterr().out
        assert load_bundle(tmp_path / f"bundle{noise}").manifest["measured"]["n"] == 2


@pytest.mark.parametrize(
    ("name", "device", "chosen"),
    [
        ("arm/lift:engine=mjwarp", "cuda:1", {"device": "cuda:1"}),
        ("arm/lift:engine=mjwarp", "cpu", {}),  # Warp's CPU device is for tests
        ("arm/lift:engine=mjwarp", "auto", {}),
        ("arm/lift:engine=mjwarp,device=cuda:0", "cuda:1", {}),
        ("arm/lift", "cuda:1", {}),
        ("gym/Pendulum-v1", "cuda", {}),
    ],
)
def test_simulator_on_a_gpu_is_on_that_of_the_run(name: str, device: str, chosen: dict[str, str]) -> None:
    """Otherwise its results would be copied through the host at every step."""
    assert engine_device(name, device) == chosen
