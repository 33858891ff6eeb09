"""Folders of finished runs, written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from robo_rl.runs.history import PastRun


def write_run(path: Path, seed: int, solved: list[int]) -> None:
    """Files of a fine-tuning run: evaluations of 10 episodes every 100 steps."""
    (path / "policy").mkdir(parents=True)
    (path / "run.json").write_text("{}")
    (path / "config.yaml").write_text(
        yaml.safe_dump({"seed": seed, "out": str(path), "method": {"name": "sac"}})
    )
    rate = {"k": solved[-1], "n": 10}
    (path / "results.json").write_text(json.dumps({"policy": {"rate": rate}}))
    steps = [100 * i for i in range(len(solved))]
    curve = {"env_steps": steps, "rates": [[k, 10] for k in solved], "returns": solved, "train_cpu_s": 1.0}
    (path / "curve.json").write_text(json.dumps(curve))


def past(path: str, verb: str, **settings: Any) -> PastRun:
    """A finished run without a success."""
    return PastRun(Path(path), settings, None, None, True, verb=verb, started="2026-05-01T12:00:00Z")
