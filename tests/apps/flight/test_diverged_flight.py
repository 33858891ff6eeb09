"""A flight training whose weights become NaN ends in one sentence, and stores neither them nor a policy.

First-order learning ends at once, since it looks at its gradient.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from robo_rl.apps.cli.main import main
from robo_rl.conf.vision import VisionConfig
from robo_rl.core.errors import DivergedError
from robo_rl.flight.vision import runs
from robo_rl.runs.run_dir import RunDir
from tests.apps.flight.test_fly import SMALL

LEARNER = "method.learner."


@pytest.mark.parametrize("every", [1, 1000])
@pytest.mark.parametrize("method", ["td3", "sac"])
def test_fly(tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str, every: int) -> None:
    out = tmp_path / "fly"
    small = [word for word in SMALL if not word.startswith(("horizon=", "flights="))] + ["method.lanes=8"]
    rates = [f"{LEARNER}lr_actor=1e38", f"{LEARNER}lr_critic=1e38"]
    command = ["fly", *small, f"method={method}", "updates=6", f"checkpoint_every={every}", *rates]
    assert main([*command, f"out={out}"]) == 2
    said = capsys.readouterr().err
    assert "The training has diverged: its weights (" in said
    assert "Give a lower learning rate." in said
    assert not RunDir(out).policy.exists()
    saved = RunDir(out).latest()
    if every == 1:
        assert saved is not None
        assert 1 <= saved[0] < 5  # update 5 is the first one that learns
        assert f"is of step {saved[0]}." in said
    else:
        assert saved is None
    assert not (out / "seed0").exists()


def test_vision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the training, which takes too long here."""
    student = nn.Linear(1, 1)
    nn.init.constant_(student.weight, torch.nan)
    monkeypatch.setattr(runs, "train", Mock(return_value=(student, {})))
    monkeypatch.setattr(runs, "work", Mock(return_value=1))
    config = VisionConfig(out=str(tmp_path / "run"))
    said = r"its weights \(weight\) are NaN and were not saved\. Give a lower learning rate\."
    with RunDir.create(tmp_path / "run", config) as run, pytest.raises(DivergedError, match=said):
        runs.train_students(config, Mock(), run)
    assert not run.policy.exists()
    assert not (run.path / "seed0").exists()
