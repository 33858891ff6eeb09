"""`robo-rl runs`: the runs below a folder with their success and the settings in which they differ."""

from __future__ import annotations

import json
import shutil
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
            about = {"path": str(run.path), "verb": run.verb, "started": run.started, "done": run.done}
            print(json.dumps(about | measured | {"settings": varied}))
        return 0
    for row, varied in zip(columns(runs, shutil.get_terminal_size().columns), settings, strict=True):
        print(f"{row}  {words(varied, config.settings)}".rstrip())
    return 0


def columns(runs: list[PastRun], width: int) -> list[str]:
    """Path, verb, success and day of each run, aligned; without the day where `width` [characters] is too
    small for it.
    """
    table = [
        [str(run.path) for run in runs],
        [run.verb for run in runs],
        [f"{outcome(run):<28}" for run in runs],
        [run.started[:10] for run in runs],
    ]
    widths = [max(map(len, cells)) for cells in table]
    if sum(widths) + 2 * len(table) > width:
        table = table[:-1]
    shown = [(cells, size) for cells, size in zip(table, widths, strict=False) if size]
    return ["  ".join(f"{cells[i]:<{size}}" for cells, size in shown) for i in range(len(runs))]


def outcome(run: PastRun) -> str:
    """Success, or the mean return where the environment reports none; with the environment if it is not the
    policy's.
    """
    where = f" on {run.elsewhere}" if run.elsewhere else ""
    if run.return_in_words:
        return f"{run.return_in_words}{where}"
    return f"{run.rate}{where}" if run.rate else "not measured" if run.done else "not finished"


def words(settings: dict[str, Any], most: int) -> str:
    """The first `most` settings as on the command line, and the number of the others."""
    given = [(key, value) for key, value in settings.items() if value is not None]
    shown = [f"{key.removesuffix('.name')}={value}" for key, value in given[:most]]
    more = [f"(and {len(given) - most} more)"] if len(given) > most else []
    return " ".join([*shown, *more])
