"""A resumed run starts from the same policies and demonstrations, or is refused with what has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from policies.checkpoint import load_policy, save_policy
from robo_rl.apps import distill, finetune
from robo_rl.apps.tuning import check, start, stores
from robo_rl.apps.tuning.auto import verb
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.finetune import FinetuneVerb, MapConfig, MethodConfig
from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.files.durable import write_json
from robo_rl.data.edit.changes import relabel_episodes
from robo_rl.data.store import DatasetWriter
from robo_rl.runs.run_dir import RunDir
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env

Change = Callable[[Path], None]


@pytest.fixture(autouse=True)
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy task under every environment name; runs begin, and train nothing."""
    for module in (start, distill):
        monkeypatch.setattr(module, "make_env", lambda name, lanes, *_, **__: make_env(lanes))
    for module in (finetune, verb):
        monkeypatch.setattr(module, "run_method", lambda *_, **__: None)
        monkeypatch.setattr(module, "report", lambda *_: None)
    monkeypatch.setattr(verb, "train_in_stages", lambda *_: None)
    monkeypatch.setattr(stores, "has_dense_reward", lambda *_: False)
    monkeypatch.setattr(check, "check_auto", lambda _: None)  # composes settings for seconds
    monkeypatch.setattr(distill, "distill_policy", lambda *_: SimpleNamespace(head=None))
    for name in ("save_policy", "train_note", "report"):
        monkeypatch.setattr(distill, name, lambda *_: None)


def record(folder: Path, episodes: int) -> None:
    """Add episodes to the dataset, or make it."""
    there = folder.exists()
    made = DatasetWriter.open(folder) if there else DatasetWriter.create(folder, SPEC)
    with closing(made) as writer:
        for number in range(episodes):
            with writer.episode() as episode:
                for _ in range(6):
                    episode.add({"state": np.array([number, 1.0], np.float32)}, np.ones(1, np.float32))
                episode.commit(success=True)


def start_run(folder: Path, name: str) -> Callable[[bool], int]:
    """Begin a run of distill, or of finetune with the method `name`; returns what continues it."""
    save_policy(folder / "base", flow_policy(SPEC))
    record(folder / "demos", 2)

    def run(resume: bool) -> int:
        base, out = str(folder / "base"), str(folder / "run")
        if name == "distill":
            return distill.main(DistillVerb(teacher=base, out=out, resume=resume))
        method, demos = MethodConfig(name=name), str(folder / "demos")
        return finetune.main(
            FinetuneVerb(out=out, base=base, demos=demos, method=method, num_envs=2, resume=resume)
        )

    assert run(False) == 0
    return run


def other_base(folder: Path) -> None:
    policy = flow_policy(SPEC)
    with torch.no_grad():
        next(policy.parameters()).add_(0.1)
    save_policy(folder / "base", policy)


def other_noise(folder: Path) -> None:
    save_policy(folder / "base", load_policy(folder / "base"), {"noise": 0.5})


def more_demos(folder: Path) -> None:
    record(folder / "demos", 1)


def relabelled(folder: Path) -> None:
    relabel_episodes(folder / "demos", {0}, success=False)


CHANGES: dict[str, tuple[Change, str]] = {
    "base": (other_base, r"base=\S+base is not what \S+run was started with .another policy"),
    "noise of the base": (other_noise, r"base=\S+base is not what .* Restore it, or start a new run"),
    "demos": (more_demos, r"demos=\S+demos is not .*2 episodes, 12 frames then; 3 episodes, 18 frames now"),
    "labels": (relabelled, r"demos=\S+demos is not .*2 episodes, 12 frames, changed since"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_resumed_finetune_refuses_other_inputs(change: str, tmp_path: Path) -> None:
    """The curve of one run would be that of two policies, or of two normalisers."""
    run = start_run(tmp_path, "residual")
    changed, words = CHANGES[change]
    changed(tmp_path)
    with pytest.raises(DataError, match=words):
        run(True)


@pytest.mark.parametrize(("name", "key"), [("auto", "base"), ("distill", "teacher")])
def test_other_verbs_that_train_from_a_policy_refuse_another_one(name: str, key: str, tmp_path: Path) -> None:
    run = start_run(tmp_path, name)
    other_base(tmp_path)
    with pytest.raises(DataError, match=rf"^{key}=\S+base is not what"):
        run(True)


@pytest.mark.parametrize(("name", "key"), [("residual", "base"), ("auto", "base"), ("distill", "teacher")])
def test_a_policy_that_is_gone_is_named_by_the_resumed_run(name: str, key: str, tmp_path: Path) -> None:
    """The training of the base has deleted the checkpoint: to name another one would be refused next."""
    run = start_run(tmp_path, name)
    shutil.rmtree(tmp_path / "base")
    said = rf"^{key}=\S+base, from which \S+run was started, is gone, and \S+run cannot be resumed"
    with pytest.raises(CheckpointError, match=said):
        run(True)


@pytest.mark.parametrize("ended", [False, True])
def test_a_checkpoint_of_a_running_training_is_pointed_out(
    ended: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It deletes its older checkpoints, of which the new run only learns when it cannot be resumed."""
    policy = tmp_path / "base/checkpoints/00000040/policy"
    for folder in (policy, tmp_path / "base/policy")[: 1 + ended]:
        save_policy(folder, flow_policy(SPEC))
    write_json(tmp_path / "base/run.json", {"format": 1})
    given, out = f"{tmp_path / 'base'}@40", str(tmp_path / "run")
    tune = FinetuneVerb(out=out, base=given, method=MethodConfig(name="residual"), num_envs=2)
    for begin, name in (
        (lambda: finetune.main(tune), "base"),
        (lambda: finetune.main(replace(tune, resume=True)), ""),
        (lambda: distill.main(DistillVerb(teacher=given, out=f"{out}2")), "teacher"),
    ):
        assert begin() == 0
        said = capsys.readouterr().out
        note = f"Note: {name}={given} is a checkpoint of a training that has not ended"
        assert (note in said) is (bool(name) and not ended)
        assert (f"give {name}=<a copy of {policy}>" in said) is (bool(name) and not ended)


def test_a_changed_normaliser_of_a_run_without_a_base_is_refused(tmp_path: Path) -> None:
    """Without base= the demonstrations scale the states, and no checkpoint holds that scale."""
    record(tmp_path / "demos", 2)
    direct = MethodConfig(name="sac", map=MapConfig("direct"))
    config = FinetuneVerb(out=str(tmp_path / "run"), env="toy", demos=str(tmp_path / "demos"), method=direct)
    assert finetune.main(config) == 0
    more_demos(tmp_path)
    with pytest.raises(DataError, match=r"demos=.* is not what"):
        finetune.main(replace(config, resume=True))


def noted(folder: Path) -> None:
    write_json(folder / "base" / "evaluation.json", {"k": 3, "n": 4})
    save_policy(folder / "base", load_policy(folder / "base"), {"train_wall_s": 3.0})


def recorded(folder: Path) -> None:
    record(folder / "run" / "episodes", 1)


def older(folder: Path) -> None:
    (folder / "run" / "inputs.json").unlink()
    other_base(folder)


@pytest.mark.parametrize("harmless", [noted, recorded, older])
@pytest.mark.parametrize("name", ["residual", "distill"])
def test_what_changes_no_action_does_not_prevent_resuming(
    name: str, harmless: Change, tmp_path: Path
) -> None:
    """Measured success beside the weights, the run's own episodes, and a run that noted no inputs."""
    run = start_run(tmp_path, name)
    harmless(tmp_path)
    assert run(True) == 0


def test_the_refusal_names_a_start_from_the_networks_where_it_works(tmp_path: Path) -> None:
    """`init=` needs a checkpoint, and an off-policy method."""
    run = start_run(tmp_path, "residual")
    with RunDir(tmp_path / "run").new_checkpoint(8) as folder:
        write_json(folder / "state.json", {})
    other_base(tmp_path)
    with pytest.raises(DataError, match=r"from the networks of this one by init=\S+run\.$"):
        run(True)
