"""A flight training whose weights become NaN ends in one sentence, and stores neither them nor a policy.

First-order learning ends at once, since it looks at its gradient.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_rl.apps.cli.main import main
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
