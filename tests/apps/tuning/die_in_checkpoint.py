"""Run by test_run_dir.py: kill a run at its k-th disk call while it saves, and inspect its checkpoints.

python die_in_checkpoint.py <folder> <step>

There is a checkpoint of step 10, and one of `step` is written with keep=1. k runs from 1 until the run
survives. Prints one JSON object per k.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, rmtree

import torch

from hardware.checks.faulty_disk import killed_at
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.runs.run_dir import RunDir

CALLS = ("fsync", "mkdir", "rmdir", "rename", "replace", "unlink", "open")


@dataclass
class Settings:
    seed: int = 7


def save(run: RunDir, step: int, value: float) -> None:
    with run.new_checkpoint(step, keep=1) as folder:
        save_state(folder, {"value": torch.full((3,), value)})


def value_of(run: RunDir) -> tuple[int, float] | None:
    """(step, saved value) of the newest checkpoint; None without one."""
    latest = run.latest()
    return None if latest is None else (latest[0], float(load_state(latest[1])["value"].mean()))


def main(folder: Path, step: int) -> None:
    clean, path = folder / "clean", folder / "run"
    save(RunDir.create(clean, Settings()), 10, 1.0)
    k, died = 0, True
    while died:
        k += 1
        copytree(clean, path)
        died = killed_at(k, lambda: save(RunDir(path), step, 2.0), CALLS)
        found = value_of(RunDir(path))
        run = RunDir.create(path, Settings(), resume=True)
        resumed = value_of(run)
        save(run, step, 3.0)  # the run goes on
        left = sorted(item.name for item in run.checkpoints.iterdir())
        result = {"died": died, "found": found, "resumed": resumed, "after": value_of(run), "left": left}
        print(json.dumps(result), flush=True)
        rmtree(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
