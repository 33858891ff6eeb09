"""Every program in benchmarks/: common options, imports, and separate results."""

from __future__ import annotations

import json
import re
import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from policies.checkpoint import FORMAT
from robo_rl.core.errors import DataError

ROOT = Path(__file__).resolve().parents[2]
NOT_MEASURING = {"readme_table"}  # makes the tables of what the others measured
PROGRAMS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if "__main__" in path.read_text() and path.stem not in NOT_MEASURING
)


def test_glob_finds_the_programs() -> None:
    """The glob must find the programs."""
    assert len(PROGRAMS) >= 23
    assert {"engines", "finetune", "pusht", "quad_dynamics"} <= set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_help_quick_and_out(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--help works, and --quick and --out are among the options."""
    if name == "loop_dds":
        pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"), run_name="__main__")
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert "--quick" in said
    assert "--out" in said


IN_APPS = {  # program -> what it uses of robo_rl.apps
    "common": {"cli.main"},  # verbs as a user types them
    "bandit": {"cli.config", "tuning.denoising"},
    "bandit_critics": {"tuning.compose", "tuning.maps"},
    "denoising": {"cli.config", "tuning.denoising"},
    "denoising_round": {"cli.config", "tuning.denoising"},
    "device_loop": {"cli.config", "tuning.compose"},
    "few_demos": {"training.train_data"},
    "kill_app": {"recording.episodes"},  # the app's own code
    "learner": {"cli.config", "tuning.compose", "tuning.warm_start"},
    "learner_equality": {"cli.config"},
    "node_start": {"node", "nodes.node_table"},  # the program that is measured, and its nodes
    "recording_app": {  # the app itself
        *("recording.callers", "recording.dataset", "recording.shared_state", "recording.episodes"),
        *("recording.node", "recording.requests", "recording.scene", "recording.settings"),
        *("recording.web.access", "recording.web.review", "recording.web.server", "recording.web.serving"),
    },
    "vla_pipeline": {"cli.config", "tuning.compose"},
    "vla_words": {"training.train_data"},
}


def test_programs_use_libraries_not_apps() -> None:
    """Benchmarks measure library code; apps only compose it for the command line."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "benchmarks").glob("*.py"):
        used = re.findall(
            r"^ *from robo_rl\.apps(?:\.([\w.]+))? import (\w+)", path.read_text(), re.MULTILINE
        )
        if used:
            found[path.stem] = {module or name for module, name in used}
    assert found == IN_APPS


def test_full_run_does_not_reuse_a_quick_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A score after 600 updates must not be reported as one after 40,000."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module: Any = import_module("pusht")
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "policy.json").write_text(
        json.dumps(
            {
                "format": FORMAT,
                "kind": "generative",
                "config": {},
                "env": {},
                "weights_crc32": 0,
                "train": {"steps": 600},
            }
        )
    )
    with pytest.raises(DataError, match="holds a policy of 600 updates, not of 40000"):
        module.trained(tmp_path / "data", tmp_path, tmp_path / "dataset", module.FULL, 0, None)
