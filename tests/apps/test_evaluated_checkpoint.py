"""Evaluating, exporting and continuing from a checkpoint never changes it, so that its run can be resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from policies.checkpoint import save_policy
from policies.tuned.one_step import JumpHead, OneStepPolicy
from robo_rl.apps import train
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.core.errors import CheckpointError
from robo_rl.eval.stats import SuccessRate
from robo_rl.runs.checksums import damage
from robo_rl.runs.loaded_policy import find_policy
from robo_rl.runs.next_step import after_evaluation
from robo_rl.runs.run_dir import RunDir
from robo_rl.runs.success_note import read_success_note
from tests.apps.conftest import train_config
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC


@pytest.fixture
def stopped(dataset: Path, run: Path, tmp_path: Path) -> Path:
    """A run that was stopped after its checkpoints of steps 8 and 12."""
    folder = tmp_path / "stopped"
    shutil.copytree(run, folder)
    shutil.rmtree(folder / "policy")
    return folder


def evaluated(policy: str) -> None:
    assert robo_rl(["evaluate", f"policy={policy}", "episodes=1", "num_workers=0", "device=cpu"]) == 0


def test_evaluated_checkpoints_resume(dataset: Path, stopped: Path, run: Path) -> None:
    """Both checkpoints are evaluated; the run then continues from the newest and ends with equal weights."""
    steps = [step for step, _ in RunDir(stopped).steps()]
    for step in steps:
        evaluated(f"{stopped}@{step}")
    assert [damage(folder) for _, folder in RunDir(stopped).steps()] == [""] * len(steps)
    assert not list((stopped / "checkpoints").rglob("evaluation.json"))
    train.main(train_config(dataset, stopped, resume=True))
    weights = Path("policy", "weights.safetensors")
    assert (stopped / weights).read_bytes() == (run / weights).read_bytes()


@pytest.mark.parametrize("name", ["", "policy"])
def test_the_policy_of_a_stopped_run_is_explained(
    name: str, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder policy/ appears at the end: the user is told how to get there, or to a checkpoint."""
    assert robo_rl(["evaluate", f"policy={stopped / name}", "episodes=1", "device=cpu"]) == 2
    said = capsys.readouterr().err
    assert f"{stopped} is a run without a policy, because it was stopped before its end" in said
    assert f"resume=true, or give {stopped}@12 for its newest checkpoint." in said


def test_only_robo_rl_train_can_keep_more_checkpoints(stopped: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"8, 12 are left\. Name one of these; robo-rl train keep_checkp"
    ):
        find_policy(f"{stopped}@4")
    (stopped / "config.yaml").write_text("base: runs/base\n")
    with pytest.raises(CheckpointError, match=r"8, 12 are left\. Name one of these\.$"):
        find_policy(f"{stopped}@4")


@pytest.mark.long
def test_the_success_of_a_checkpoint_is_exported(stopped: Path, tmp_path: Path) -> None:
    """The note is kept in the run's folder; it is that of the checkpoint's weights alone."""
    evaluated(f"{stopped}@8")
    note = json.loads((stopped / "evaluations" / "00000008.json").read_text())
    assert note["n"] == 1
    assert robo_rl(["export", f"policy={stopped}@8", f"out={tmp_path / 'bundle'}"]) == 0
    assert json.loads((tmp_path / "bundle" / "manifest.json").read_text())["measured"]["n"] == 1
    assert read_success_note(stopped / "checkpoints" / "00000012" / "policy") is None


def test_files_beside_those_of_a_checkpoint_are_no_damage(stopped: Path) -> None:
    """A note, a picture or a lock beside listed files changes no training state; a listed file must match."""
    checkpoint = stopped / "checkpoints" / "00000012"
    (checkpoint / "policy" / "notes.txt").write_text("best so far")
    assert damage(checkpoint) == ""
    (checkpoint / "policy" / "policy.json").write_text("{}")
    (checkpoint / "state.safetensors").unlink()
    assert damage(checkpoint) == "policy/policy.json, state.safetensors changed or missing"
    (checkpoint / "checksums.json").write_text("{}")
    assert damage(checkpoint) == "checksums.json holds no checksums"


def test_a_head_in_a_checkpoint_is_exported_beside_its_run(stopped: Path, tmp_path: Path) -> None:
    policy = stopped / "checkpoints" / "00000008" / "policy"
    shutil.rmtree(policy)
    save_policy(policy, OneStepPolicy(flow_policy(SPEC), JumpHead(flow_policy(SPEC))))
    said = after_evaluation(policy, SuccessRate(9, 10))
    assert said == f"robo-rl export policy={stopped}@8 out={tmp_path / 'stopped-8-bundle'}"


def test_the_next_step_names_the_checkpoint(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checkpoints are deleted as the training goes on: nothing may be written into one."""
    evaluated(f"{stopped}@8")
    assert "/checkpoints/" not in capsys.readouterr().out.rpartition("Next:")[2]
    policy = stopped / "checkpoints" / "00000008" / "policy"
    data = RunDir(stopped).config()["data"]
    said = after_evaluation(policy, SuccessRate(3, 10))
    assert said == f"robo-rl finetune base={stopped}@8 demos={data} out={tmp_path / 'tuned'}"
    (tmp_path / "head").mkdir()
    said = after_evaluation(policy, SuccessRate(10, 10))
    assert said == f"robo-rl distill teacher={stopped}@8 out={tmp_path / 'head-2'}"
    assert find_policy(f"{stopped}@8") == policy
