"""Every example runs, with small settings."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SLOW = ("hover",)  # compiles a simulator's gradient: 10 CPU-seconds
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in ("point_env", "steering"))


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NAMES]
)
def test_the_example_runs(name: str, tmp_path: Path) -> None:
    """From its first line to its result."""
    assert import_module(name).main(tmp_path, quick=True) is not None


def test_steering_is_the_residual_example_with_another_method(tmp_path: Path) -> None:
    """Its script calls the same function."""
    run = import_module("base_and_residual").main(tmp_path, quick=True, method="steering")
    assert run.rate.n == run.before.n == 4
    assert "main(Path(" in (EXAMPLES / "steering.py").read_text()
    assert "steering" not in sys.modules
