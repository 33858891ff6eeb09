"""A folder for the commands, and a teacher in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.checkpoint import save_policy
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the commands, in which no `out=` exists yet."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    """Policy folder of a run, whose noise is N(0, I)."""
    save_policy(tmp_path / "runs/base/policy", flow_policy(SPEC), {"noise": 1.0})
    (tmp_path / "runs/base/run.json").write_text("{}")
    return Path("runs/base/policy")
