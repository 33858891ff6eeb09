"""A training whose weights become NaN ends, and keeps the checkpoint before them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from policies.checkpoint import load_policy, save_policy
from robo_rl.apps import distill, pretrain, train
from robo_rl.apps.cli.main import main
from robo_rl.apps.tuning.diverged import best_if_diverged
from robo_rl.apps.tuning.evaluations import Best
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.errors import DivergedError, RoboRLError
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.runs.loaded_policy import find_policy
from robo_rl.runs.resumable import check_weights
from robo_rl.runs.run_dir import RunDir
from tests.apps.conftest import train_config
from tests.apps.training.test_learn_from import dataset
from tests.apps.training.test_pretrain import pretrain_config
from tests.policies.dot_video import record_dots
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env


def test_nan_is_found_in_nested_weights_alone(tmp_path: Path) -> None:
    """Infinite numbers, such as limits, and whole ones are no sign of a divergence."""
    good = {"actor": {"bias": torch.tensor([1.0, torch.inf]), "count": torch.tensor([3])}, "step": 4}
    bad = good | {"critic": {"bias": torch.tensor([1.0, torch.nan])}}
    run = RunDir(tmp_path / "run")
    check_weights(good, run, "Lower it.")
    said = r"weights \(critic\.bias\) are NaN and were not saved\. Lower it\. Nothing was saved yet\.$"
    with pytest.raises(RoboRLError, match=said):
        check_weights(bad, run, "Lower it.")


def check_kept(run: Path, said: str) -> None:
    """The message names a policy that can be loaded, and whose weights are finite."""
    (named,) = re.findall(r"The policy of step \d+ is (\S+)\.\s*$", said)
    assert named.startswith(f"{run}@")
    policy = load_policy(find_policy(named))
    assert isinstance(policy, nn.Module)
    assert all(weights.isfinite().all() for weights in policy.parameters())
    assert not RunDir(run).policy.exists()


def test_a_diverged_base_is_not_saved(tmp_path: Path) -> None:
    """Also between two looks at the loss."""
    data, out = dataset(tmp_path / "data", (True, True)), tmp_path / "run"
    few = {"steps": 20, "checkpoint_every": 1, "log_every": 20, "lr": 1e20}
    with pytest.raises(
        RoboRLError, match=r"are NaN .* Lower lr=1e\+20, or look for NaN in the data"
    ) as caught:
        train.main(train_config(data, out, **few))
    check_kept(out, str(caught.value))


def test_a_base_that_diverges_before_its_first_checkpoint_names_none(tmp_path: Path) -> None:
    data, out = dataset(tmp_path / "data", (True, True)), tmp_path / "run"
    few = {"steps": 30, "checkpoint_every": 10, "log_every": 30, "lr": 1e20}
    with pytest.raises(RoboRLError, match=r"are NaN .* Nothing was saved yet\.$"):
        train.main(train_config(data, out, **few))
    assert RunDir(out).latest() is None


def test_a_diverged_fine_tuning_is_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["env_steps=120", "method.base_steps=40", "method.burn_in=0", "method.learner.hidden=[8]"]
    few += ["checkpoint_every=1", "num_envs=1", "num_workers=0", "eval_episodes=1", "final_episodes=1"]
    few += ["method.learner.lr_actor=1e38", "method.learner.lr_critic=1e38", "max_episode_steps=10"]
    out = tmp_path / "run"
    assert main(["finetune", "env=gym/Pendulum-v1", "method=sac", f"out={out}", *few]) != 0
    said = capsys.readouterr().err
    assert "are NaN and were not saved. Lower method.learner.lr_actor" in said
    check_best(out, said)


def check_best(run: Path, said: str) -> None:
    """The policy of the best evaluation is kept beside the checkpoints."""
    assert re.search(r"The policy of step \d+, whose evaluation was the best, is kept", said)
    assert f"policy={run / 'best'}," in said
    policy = load_policy(find_policy(str(run / "best")))
    assert isinstance(policy, nn.Module)
    assert all(weights.isfinite().all() for weights in policy.parameters())
    assert not RunDir(run).policy.exists()
    assert all((folder / "state.json").is_file() for _, folder in RunDir(run).steps())


def test_a_diverged_encoder_is_not_saved(tmp_path: Path) -> None:
    """A loss that is looked at later would be too late for the two checkpoints that are kept."""
    data, out = record_dots(tmp_path / "dots", 3), tmp_path / "run"
    with pytest.raises(RoboRLError, match=r"are NaN and were not saved\. Lower lr=1e\+20\. The newest check"):
        pretrain.main(pretrain_config(data, out, steps=40, checkpoint_every=1, log_every=40, lr=1e20))
    assert not RunDir(out).encoder.exists()


def test_a_diverged_head_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was saved, evaluated and advised for export."""
    monkeypatch.setattr(distill, "make_env", lambda name, lanes, *_, **__: make_env(lanes))
    save_policy(tmp_path / "teacher", flow_policy(SPEC))
    config = DistillVerb(
        teacher=str(tmp_path / "teacher"), out=str(tmp_path / "run"), steps=20, batch_size=8, rounds=0,
        rollout_steps=40, num_envs=2, lr=1e38, net=MlpDenoiserConfig(width=16, depth=1),
    )  # fmt: skip
    with pytest.raises(RoboRLError, match=r"are NaN and were not saved\. Lower lr=1e\+38\."):
        distill.main(config)
    assert not RunDir(tmp_path / "run").policy.exists()


class Weights:
    """A learner with one weight."""

    def __init__(self, value: float) -> None:
        self.value = torch.tensor(value)

    def weights(self) -> dict[str, Any]:
        return {"actor": {"bias": self.value}}

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        self.value = weights["actor"]["bias"]


@pytest.mark.parametrize(("present", "kept"), [(torch.nan, 2.0), (1.0, None)])
def test_the_kept_policy_is_the_best_one(present: float, kept: float | None, tmp_path: Path) -> None:
    """Also where a later policy was saved at the same step; errors of finite weights are not touched."""
    learner, best = Weights(present), Best(0, (1.0, 1.0), Weights(2.0).weights())
    saved: dict[Path, float] = {}

    def save(folder: Path) -> None:
        saved[folder] = float(learner.value)

    run = RunDir(tmp_path / "run")
    with (
        pytest.raises(
            ValueError if kept is None else DivergedError, match="refused" if kept is None else "best"
        ),
        best_if_diverged(run, learner, lambda: best, save, "Lower it."),
    ):
        raise ValueError("the action was refused")
    assert saved == ({} if kept is None else {run.best: kept})


def test_a_fine_tuning_whose_actions_are_nan_keeps_its_best_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The environment refuses the action before a checkpoint would find the weights."""
    few = ["env_steps=120", "method.base_steps=20", "method.burn_in=0", "method.learner.hidden=[8]"]
    few += ["checkpoint_every=500", "num_envs=1", "num_workers=0", "eval_episodes=1", "final_episodes=1"]
    few += ["method.learner.lr_actor=1e4", "method.learner.lr_critic=1e37", "max_episode_steps=10"]
    out = tmp_path / "run"
    assert main(["finetune", "env=gym/Pendulum-v1", "method=sac", f"out={out}", *few]) != 0
    check_best(out, capsys.readouterr().err)
