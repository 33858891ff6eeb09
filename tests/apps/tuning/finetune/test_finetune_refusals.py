"""Mistakes in the settings and demonstrations of `robo-rl finetune` are named before a run is created."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.tuning.check import other_task
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.data.store import DatasetWriter, EpisodeStore
from tests.rl.worlds import SPEC

pytest.importorskip("metaworld", reason="needs MetaWorld: pip install 'robo-rl[sim]'")


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
