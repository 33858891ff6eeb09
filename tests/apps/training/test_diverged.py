"""A training whose weights become NaN ends, and keeps the checkpoint before them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robo_rl.apps import train
from robo_rl.apps.cli.main import main
from robo_rl.core.errors import RoboRLError
from robo_rl.runs.resumable import check_weights
from robo_rl.runs.run_dir import RunDir
from tests.apps.conftest import train_config
from tests.apps.training.test_learn_from import dataset


def test_nan_is_found_in_nested_weights_alone() -> None:
    """Infinite numbers, such as limits, and whole ones are no sign of a divergence."""
    good = {"actor": {"bias": torch.tensor([1.0, torch.inf]), "count": torch.tensor([3])}, "step": 4}
    check_weights(good, "Lower it.")
    with pytest.raises(RoboRLError, match=r"weights \(bias\) are NaN\. .* is kept\. Lower it\."):
        check_weights(good | {"critic": {"bias": torch.tensor([1.0, torch.nan])}}, "Lower it.")


def test_a_diverged_base_is_not_saved(tmp_path: Path) -> None:
    """Also between two looks at the loss."""
    data, out = dataset(tmp_path / "data", (True, True)), tmp_path / "run"
    few = {"steps": 20, "checkpoint_every": 1, "log_every": 20, "lr": 1e20}
    with pytest.raises(RoboRLError, match=r"are NaN\. .* Lower lr=1e\+20, or look for NaN in the data"):
        train.main(train_config(data, out, **few))
    assert RunDir(out).latest() is not None
    assert not RunDir(out).policy.exists()


def test_a_diverged_fine_tuning_is_not_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium", reason="needs Gymnasium: pip install 'robo-rl[sim]'")
    few = ["env_steps=120", "method.base_steps=40", "method.burn_in=0", "method.learner.hidden=[8]"]
    few += ["checkpoint_every=1", "num_envs=1", "num_workers=0", "eval_episodes=1", "final_episodes=1"]
    few += ["method.learner.lr_actor=1e38", "method.learner.lr_critic=1e38", "max_episode_steps=10"]
    out = tmp_path / "run"
    assert main(["finetune", "env=gym/Pendulum-v1", "method=sac", f"out={out}", *few]) != 0
    said = capsys.readouterr().err
    assert "are NaN. They were not saved; a checkpoint from before is kept. Lower method.learner" in said
    assert RunDir(out).latest() is not None
    assert not RunDir(out).policy.exists()
