"""Shared parts of benchmarks: options, and output as one JSON object per line with machine and commit.

A benchmark takes `parser(...)`'s options, measures, and calls `emit` once per number:

    {"name": "windows/raw/per_cpu_s", "value": 31000.0, "unit": "windows/cpu-s", "machine": ..., "commit":
    ...}
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from robo_rl.core.provenance import commit, machine, versions
from robo_rl.eval.timing import cpu_seconds

__all__ = [
    "commit",
    "cpu_seconds",
    "emit",
    "into_log",
    "machine",
    "own_folder",
    "parser",
    "results_file",
    "verb",
]

RESULTS = Path(__file__).parent / "results"
_options = argparse.Namespace(
    quick=False, out=None
)  # options read by `parser`; `emit` marks and copies lines by them


def results_file() -> Path:
    """benchmarks/results/<machine>-<commit>.jsonl: one file per machine and commit."""
    return RESULTS / (re.sub(r"[^a-z0-9]+", "-", machine().lower()).strip("-") + f"-{commit()}.jsonl")


class _Remembering(argparse.ArgumentParser):
    def parse_known_args(
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        known, rest = super().parse_known_args(args, namespace)
        _options.quick, _options.out = known.quick, known.out
        return known, rest


def parser(description: str) -> argparse.ArgumentParser:
    """A parser with the two options of every benchmark, `--quick` and `--out`; add your own to it."""
    made = _Remembering(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    made.add_argument(
        "--quick", action="store_true", help="a smaller run, under a CPU-minute; its lines say so"
    )
    made.add_argument(
        "--out",
        type=Path,
        nargs="?",
        const=results_file(),
        help="append the lines to this file too; without a value, to benchmarks/results/",
    )
    return made


def own_folder(folder: Path) -> Path:
    """`folder`, in which finished work is kept; in a quick run a temporary folder, deleted at the end.

    So a full run does not reuse results of a quick one, a quick run reports only what it measured, and two
    parallel quick runs do not interfere.
    """
    if not _options.quick:
        return folder
    own = Path(tempfile.mkdtemp(prefix="robo-rl-quick-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


def emit(name: str, value: float, unit: str, **extra: Any) -> None:
    """Print one result as a JSON line, with machine, commit and versions; append it to `--out` if given.

    JSON has no NaN and infinity: such a value is reported on stderr instead of a line; in further fields it
    becomes null.
    """
    if not math.isfinite(value):
        print(f"{name}: no finite value ({value})", file=sys.stderr)
        return
    line: dict[str, Any] = {"name": name, "value": value, "unit": unit, **_finite(extra)}
    if _options.quick:
        line["quick"] = True
    line |= {"machine": machine(), "commit": commit(), "torch": versions().get("torch", "none")}
    line["date"] = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = json.dumps(line, allow_nan=False)
    print(text, flush=True)
    if _options.out is not None:
        _options.out.parent.mkdir(parents=True, exist_ok=True)
        with _options.out.open("a") as file:
            file.write(text + "\n")


def verb(name: str, *words: str, **settings: Any) -> None:
    """Run a verb of the command line; words are `key=value`. What it prints goes to stderr, because stdout
    holds results alone. Exits if the verb fails.
    """
    from robo_rl.apps.cli.main import main

    given = [
        f"{key}={json.dumps(each) if isinstance(each, bool) else each}" for key, each in settings.items()
    ]
    typed = [*name.split(), *words, *given]
    with contextlib.redirect_stdout(sys.stderr):
        code = main(typed)
    if code:
        raise SystemExit(f"robo-rl {' '.join(typed)} failed with exit code {code}")


@contextlib.contextmanager
def into_log(path: Path) -> Iterator[None]:
    """Append what the block prints to a file; if a verb in it fails, print the verb's last sentence, too."""
    try:
        with path.open("a") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            yield
    except SystemExit as error:
        said = [line for line in path.read_text().splitlines() if line.startswith("robo-rl: ")]
        raise SystemExit("\n".join([str(error), *said[-1:]])) from error


def _finite(value: Any) -> Any:
    """The value with None for every NaN and infinity in it."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
