"""Every example runs, with small settings."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.hardware.domains import free_domain

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SLOW = ("hover",)  # compiles a simulator's gradient: 10 CPU-seconds
APART = ("point_env", "steering", "node_client")  # no example by itself, or with a test of its own below
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in APART)


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


def test_a_node_of_ones_own_drives_the_simulated_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over DDS against `robo-rl up arm_sim`: the arm follows, and a jump of 3 rad becomes small steps."""
    pytest.importorskip("cyclonedds")
    with free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        words = [sys.executable, "-m", "robo_rl", "up", "arm_sim"]
        nodes = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            client = import_module("node_client").main(seconds=3.0)
        finally:
            nodes.send_signal(signal.SIGINT)
            said = nodes.communicate(timeout=60)[0]
    assert nodes.returncode == 0, said
    assert max(client.measured_rad) - min(client.measured_rad) > 0.5
    assert np.abs(np.diff(client.safe_rad)).max() < 0.2
