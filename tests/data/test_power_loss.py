"""Power losses while episodes are recorded, simulated by `benchmarks/attacks/power_loss.py`.

`benchmarks/attack.py --part power` tries a thousand of them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from robo_rl.data.episodes import commit


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    return import_module("attacks.power")


def test_no_committed_episode_is_lost_and_all_others_can_be_recovered(power: ModuleType) -> None:
    tried, violations, example = power.attack(30, seed=0)
    assert (tried, violations.total(), example) == (30, 0, "")


def test_the_simulation_notices_a_missing_fsync(power: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit without fsync of its arrays loses them: this shows that the test above can fail."""
    monkeypatch.setattr(commit, "_sync", lambda directory, files: None)
    _, violations, _ = power.attack(10, seed=0)
    assert violations.total() > 0
