"""Files that a command left when Ctrl-C ended it, for commands that do not name them themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

KEPT = "what was committed before is kept"
ATOMIC = ("data import", "data export", "data merge")  # `out` appears when it is complete
UNITS = {  # verbs of one training in `out`, and what its checkpoints count
    "train": "update",
    "pretrain": "update",
    "finetune": "step",
    "distill": "update",
    "fly": "update",
    "swarm": "update",
}


def stopped_words(verb: str, config: Any, began_s: float) -> str:
    """Clause on a stopped command. config: its settings; None: not read yet. began_s: its start, as
    `time.time()`.
    """
    if config is None:
        return "nothing was started"
    if verb == "evaluate":
        written = bool(config.out) and _written_since(Path(config.out), began_s)  # then it was filming
        return f"the result is in {config.out}" if written else "no result"
    if verb in ATOMIC:
        return KEPT if Path(config.out).exists() else "nothing was written; the same command starts again"
    if verb in ("transfer", "mission"):
        return _measured(verb, config, began_s)
    if verb not in UNITS:
        return KEPT
    from robo_rl.runs.resumable import how_to_continue
    from robo_rl.runs.run_dir import RunDir

    file = Path(config.out) / "run.json"
    if _written_since(file, 0.0 if config.resume else began_s):  # else that of another run
        return how_to_continue(RunDir(file.parent), UNITS[verb])
    return "nothing was saved; the same command starts again"


def _measured(verb: str, config: Any, began_s: float) -> str:
    """Clause on a verb that writes its figures before its pictures. `mission` makes a run, too."""
    out = Path(config.out)
    if _written_since(out / "results.json", began_s):
        return f"the figures are in {out / 'results.json'}"
    if verb == "mission" and _written_since(out / "run.json", 0.0 if config.resume else began_s):
        return "no result; the same command with resume=true plans and flies all missions"
    return "no result; the same command starts again"


def _written_since(file: Path, began_s: float) -> bool:
    return file.is_file() and file.stat().st_mtime >= began_s
