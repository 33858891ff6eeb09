"""Each verb ends with the command for the next step, which can be pasted into a shell."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policies.checkpoint import save_policy
from policies.tuned.residual import ResidualPolicy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.finetune import MethodConfig
from robo_rl.core.action_map import ResidualMap
from robo_rl.data.store import DatasetWriter
from robo_rl.eval.stats import SuccessRate
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.runs.next_step import after_data, after_evaluation, after_view, train_on
from tests.apps.next_step.advice import CONFIG, tuned
from tests.policies.small import flow_policy
from tests.policies.small_vla import SPEC as SIDES
from tests.policies.small_vla import small_vla
from tests.rl.worlds import SPEC


def test_data_with_instructions_train_a_policy_that_reads_them(tmp_path: Path) -> None:
    """Advice after a collection, for a better base, and for the pupil of a privileged teacher."""
    numbers = replace(SIDES, obs={key: array for key, array in SIDES.obs.items() if "image" not in key})
    for name, spec in (("told", SIDES), ("plain", SPEC), ("numbers", numbers)):
        DatasetWriter.create(tmp_path / name, spec).close()
    assert train_on("told") == "robo-rl train policy=vla data=told out=runs/base"
    assert train_on("plain") == "robo-rl train data=plain out=runs/base"
    assert train_on("numbers") == "robo-rl train data=numbers out=runs/base"  # policy=vla needs pictures
    actor = make_actor(ActorConfig("deterministic", 2, 1, (8,)))
    save_policy(tmp_path / "vla", small_vla())
    save_policy(tmp_path / "tuned", ResidualPolicy(small_vla(), actor, ResidualMap(1, 0.3)))
    save_policy(tmp_path / "flow", flow_policy(SPEC))
    better = "robo-rl train policy=vla data=<more demonstrations>"
    assert after_evaluation(tmp_path / "vla", SuccessRate(0, 10)).startswith(better)
    privileged = MethodConfig(name="residual_lanes", privileged=True)
    for base, demos, told in (
        ("vla", None, True),
        ("tuned", None, True),
        ("flow", "told", True),
        ("flow", None, False),
    ):
        config = replace(CONFIG, base=base, demos=demos)
        assert (better in tuned(0, 0, 1.0, config)) is told
        config = replace(config, method=privileged, env="metaworld/mt6", demos=demos or "plain")
        assert ("robo-rl train policy=vla 'data=[" in tuned(50, 90, 1e-6, config)) is told


def test_commands_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    """Spaces and commas in a path, and folders that exist: the verb gets the path, and a free `out`."""
    home = tmp_path / "my runs"
    out = home / "a b,v=2"
    for taken in ("head", "head-2"):
        (home / taken).mkdir(parents=True)
    said = tuned(50, 90, 1e-6, replace(CONFIG, out=str(out)))
    given = load_config("distill", shlex.split(said)[2:], DistillVerb)
    assert (given.teacher, given.out) == (str(out), str(home / "head-3"))
    Path("runs/base").mkdir(parents=True)
    info = {"path": "my data/peg", "env": "arm6/reach", "interrupted": 0, "episodes": 3}
    assert after_data(info) == "robo-rl train 'data=my data/peg' out=runs/base-2"
    Path("data/lift").mkdir(parents=True)
    assert after_view("arm/lift") == "robo-rl collect env=arm/lift out=data/lift-2"


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, "robo-rl train data=data/peg out=runs/base"),
        ({"interrupted": 1}, "robo-rl data validate path=data/peg recover=true"),
        ({"episodes": 0}, "robo-rl collect env=arm6/reach out=data/peg"),
        (
            {"episodes": 0, "env": "robot/so100"},
            "robo-rl record robot=<description of so100> out=data/peg",
        ),
    ],
)
def test_a_dataset_is_repaired_filled_or_trained_on(changes: dict[str, Any], command: str) -> None:
    """In this order."""
    assert (
        after_data({"path": "data/peg", "env": "arm6/reach", "interrupted": 0, "episodes": 3} | changes)
        == command
    )


def test_a_viewed_environment_is_collected_from() -> None:
    """Options of the environment stay; the folder is named by the task."""
    assert (
        after_view("arm/lift:engine=pybullet") == "robo-rl collect env=arm/lift:engine=pybullet out=data/lift"
    )


@pytest.mark.long
def test_the_verbs_print_their_next_step_and_the_runtime_of_their_times(
    dataset: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`data info`, `evaluate` and `run`; torch and ONNX Runtime are named beside the decision time."""
    assert robo_rl(["data", "info", f"path={dataset}"]) == 0
    said = capsys.readouterr().out
    assert f"Next:   robo-rl train data={dataset}" in said
    assert "images" not in said
    few = ["max_episode_steps=5"]
    assert robo_rl(["evaluate", f"policy={run}", "episodes=2", "num_workers=0", "device=cpu", *few]) == 0
    said = capsys.readouterr().out
    assert "Next:   robo-rl " in said
    assert "batch of 1, torch on cpu" in said
    bundle = tmp_path / "bundle"
    assert robo_rl(["export", f"policy={run}", f"out={bundle}", "noise=gaussian"]) == 0
    capsys.readouterr()
    assert robo_rl(["run", f"bundle={bundle}", "episodes=1", "rate_hz=1000", *few]) == 0
    said = capsys.readouterr().out
    assert "decision times: ONNX Runtime on cpu" in said
    assert "Next:   a bundle for your own robot: docs/robot.md" in said
    assert robo_rl(["evaluate", f"policy={bundle}", "episodes=1", "num_workers=0", "device=cpu", *few]) == 0
    said = capsys.readouterr().out
    assert "batch of 1, ONNX Runtime on cpu" in said
    assert f"Next:   robo-rl run bundle={bundle}" in said
    assert after_evaluation(run / "policy", SuccessRate(10, 10)).startswith(f"robo-rl distill teacher={run}")
