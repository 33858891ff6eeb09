"""`robo-rl runs`: the runs below a folder with their success and the settings in which they differ."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from robo_rl.conf.history import RunsConfig
from robo_rl.core.errors import CheckpointError
from robo_rl.runs.history import PastRun, differing, no_run, read_runs


def main(config: RunsConfig) -> int:
    """Print one line per run, and a sentence on each damaged one; returns 2 if none is sound."""
    runs, faults = read_runs(Path(config.path))
    for fault in faults:
        print(fault, file=sys.stderr)
    if not runs and faults:
        return 2
    if not runs:
        raise CheckpointError(f"{no_run(Path(config.path))} Give the folder of a run, or one around several.")
    settings = differing(runs)
    if config.json:
        for run, varied in zip(runs, settings, strict=True):
            rate = None if run.rate is None else run.rate.to_json()
            measured = {"success": rate, "mean_return": run.mean_return}
            print(json.dumps({"path": str(run.path), "done": run.done} | measured | {"settings": varied}))
        return 0
    width = max(len(str(run.path)) for run in runs)
    for run, varied in zip(runs, settings, strict=True):
        print(f"{run.path!s:<{width}}  {outcome(run):<28}  {words(varied, config.settings)}".rstrip())
    return 0


def outcome(run: PastRun) -> str:
    """Success, or the mean return where the environment reports none."""
    if run.mean_return is not None:
        return f"mean return {run.mean_return:.4g}"
    return str(run.rate) if run.rate else "not measured" if run.done else "not finished"


def words(settings: dict[str, Any], most: int) -> str:
    """The first `most` settings as on the command line, and the number of the others."""
    given = [(key, value) for key, value in settings.items() if value is not None]
    shown = [f"{key.removesuffix('.name')}={value}" for key, value in given[:most]]
    more = [f"(and {len(given) - most} more)"] if len(given) > most else []
    return " ".join([*shown, *more])
