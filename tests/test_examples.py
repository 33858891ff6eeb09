"""Every example runs, with small settings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import robo_rl as rr
from robo_rl.apps import contract
from robo_rl.conf.schema import ContractConfig
from tests.hardware.domains import free_domain

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
NOTEBOOK = EXAMPLES / "first_day.ipynb"
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
    """Run an example completely."""
    assert import_module(name).main(tmp_path, quick=True) is not None


def test_the_dataset_of_ones_own_leads_to_a_bundle_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written, trained, exported, and accepted for a robot with these joints."""
    run = import_module("own_dataset").main(tmp_path, quick=True)
    rr.export(run.path, out=tmp_path / "bundle", noise="zero")
    joint = {"low_rad": -2.0, "high_rad": 2.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 60.0}
    joints = [{"name": name, **joint} for name in ("base", "shoulder", "elbow")]
    robot = {"name": "my_arm", "command_hz": 50, "state_hz": 100, "joints": joints}
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(robot))
    capsys.readouterr()
    assert contract.main(ContractConfig(str(tmp_path / "bundle"), str(tmp_path / "robot.yaml"))) == 0
    assert "bundle fits my_arm: 3 joints" in capsys.readouterr().out


def test_steering_is_the_residual_example_with_another_method(tmp_path: Path) -> None:
    """Running it as a script calls the same function."""
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


def cells() -> list[dict[str, Any]]:
    """Cells of the notebook."""
    return list(json.loads(NOTEBOOK.read_text())["cells"])


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the notebook's cells in order, with small values instead of those in the cell tagged
    "parameters".
    """
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    small = (
        f"OUT = Path({str(tmp_path)!r})\n"
        "DEMOS, NOISE, UPDATES = 3, 0.2, 20\n"
        "ENV_STEPS, EVAL_EVERY, EVAL_EPISODES, BASE_STEPS, BURN_IN, EPISODES = 60, 30, 4, 20, 2, 4"
    )
    names: dict[str, Any] = {"__name__": "__main__"}
    parameters: dict[str, Any] = {}
    for cell in cells():
        if cell["cell_type"] == "code":
            chosen = "parameters" in cell["metadata"].get("tags", [])
            if chosen:
                exec("from pathlib import Path\n" + "".join(cell["source"]), parameters)
            exec(small if chosen else "".join(cell["source"]), names)
    assert (tmp_path / "bundle" / "manifest.json").is_file()
    assert names["tuned"].rate.n == 4
    assert {name for name in parameters if name.isupper()} == {name for name in names if name.isupper()} - {
        "NAME"
    }


def test_the_notebook_was_executed() -> None:
    """Every code cell has outputs and no error; there are five plots; the file is small."""
    code = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 5
    assert NOTEBOOK.stat().st_size < 500_000
    assert str(Path.home()) not in NOTEBOOK.read_text()
