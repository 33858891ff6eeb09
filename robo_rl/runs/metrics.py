"""Scalars of a run: metrics.jsonl is the record; a logger and the progress bar show them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import write_atomic
from robo_rl.runs.loggers import open_logger

if TYPE_CHECKING:
    from torch import Tensor


METRICS_FILE = "metrics.jsonl"  # in a run's folder


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Complete lines of a metrics.jsonl, without a last line that a kill truncated.

    Raises DataError for a damaged line before the last one.
    """
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            values = json.loads(line)
            values["step"] + 0
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{path} is damaged in line {number}, which is no JSON object with a step: {line[:40]!r}. "
                "Delete that line to continue without it."
            ) from error
        yield values


class Metrics:
    """Appends {"step": n, name: value, ...} to `folder`/metrics.jsonl and mirrors it in a logger.

    A line reaches the kernel before `log` returns, so a killed process loses none. A run that resumes from a
    checkpoint at step s passes `resume_step` = s: later lines are dropped, since they are logged again, and
    the curve equals that of an uninterrupted run. So log step s before its checkpoint is written, or save
    `lines` in the checkpoint and pass it as `resume_lines`, which also drops later lines of step s. Values
    must be deterministic functions of the run; the logger adds wall time. logger: a name of `loggers`, or
    None. settings: of the run, for the logger.
    """

    def __init__(
        self,
        folder: Path,
        resume_step: int | None = None,
        *,
        resume_lines: int | None = None,
        logger: str | None = "tensorboard",
        settings: Mapping[str, Any] | None = None,
        bar: Any = None,
    ) -> None:
        self.path, self.bar = folder / METRICS_FILE, bar
        self.shown: tuple[str, ...] = ()  # names of the values in the progress bar
        self._latest: dict[str, float] = {}  # their latest values; a line may hold only some of them
        kept = [] if resume_step is None else [m for m in read_metrics(self.path) if m["step"] <= resume_step]
        kept = kept[:resume_lines]
        self.lines = len(kept)  # number of lines so far
        sent = self.path.read_bytes().count(b"\n") if self.path.exists() else 0
        # before the file is cut, because the logger notes how many lines were sent
        self._logger = None if logger is None else open_logger(logger, folder, settings or {}, kept, sent)
        try:
            write_atomic(self.path, "".join(json.dumps(m) + "\n" for m in kept).encode())
            self._file = self.path.open("a")
        except BaseException:  # of a full disk: a logger that stays open would write on in its thread
            self._close_logger(failed=True)
            raise

    def log(self, step: int, values: Mapping[str, float | Tensor]) -> None:
        """Log scalars of one step. A value that is not finite is written as null."""
        numbers = {name: float(value) for name, value in values.items()}
        finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        self._file.write(json.dumps({"step": step, **finite}) + "\n")
        self._file.flush()
        self.lines += 1
        if self._logger is not None:
            self._logger.log(step, numbers)
        if self.bar is not None:
            self._show_progress(numbers)

    def _show_progress(self, numbers: Mapping[str, float]) -> None:
        """Show the latest of the chosen values; a line without any of them leaves the bar unchanged."""
        if not self.shown:
            self._latest = dict(list(numbers.items())[:3])
        elif chosen := {name: numbers[name] for name in self.shown if name in numbers}:
            self._latest |= chosen
        else:
            return
        shown = [name for name in self.shown or self._latest if name in self._latest]
        text = ", ".join(f"{name.rpartition('/')[2]} {self._latest[name]:.3g}" for name in shown)
        self.bar.set_postfix_str(text, refresh=False)

    def sync(self) -> None:
        """Make all lines so far survive a power loss. Called before a checkpoint is committed."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, failed: bool = False) -> None:
        try:
            self.sync()
            self._file.close()
        finally:
            self._close_logger(failed)

    def _close_logger(self, failed: bool) -> None:
        if self._logger is not None:
            self._logger.close(failed)

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)
