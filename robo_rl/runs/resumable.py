"""Loop of a training run: advance, save, stop and resume. Used by every verb that trains.

A training is an object with `done`, `step`, `advance` and `state_dict` (see `Resumable`). A verb opens the
session, restores the training from `session.state`, and runs it:

    with resumable(run, total=config.steps, label="train", resume=config.resume) as session:
        training = Training(...)
        if (state := session.take_state()) is not None:
            training.load_state_dict(state)
        session.run(training, checkpoint_every=config.checkpoint_every)

A run that was killed at any instant and resumed equals an uninterrupted one bit for bit, provided that
`state_dict` holds everything that `advance` reads and changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from robo_rl.core.errors import DiskFullError, DivergedError
from robo_rl.core.files.path_error import explained
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.runs.estimate import TimeEstimate
from robo_rl.runs.metrics import Metrics
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import SAVED, RunDir
from robo_rl.runs.signals import StopRequest, stop_between_steps

_LOG_LINES = "log_lines"  # key of a saved state: lines of metrics.jsonl at the checkpoint


@runtime_checkable
class Resumable(Protocol):
    """A training that can be saved between two calls of `advance`."""

    @property
    def done(self) -> bool:
        """True after the last step."""
        ...

    @property
    def step(self) -> int:
        """Steps since the start of the run, which name the checkpoint. A call of `advance` may leave it
        unchanged.
        """
        ...

    def advance(self) -> None:
        """Do the smallest unit of work after which the state can be saved, and log it."""
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """State that is needed to continue: nested dicts of tensors and plain values (`state_io`)."""
        ...


def crossed(before: int, now: int, every: int) -> bool:
    """True if a multiple of `every` lies in (before, now]; always False for every=0."""
    return every > 0 and now // every > before // every


class RunSession:
    """Progress bar, log, checkpoints and stop requests of one run. Made by `resumable`.

    state: the newest saved state; None for a fresh start.
    """

    def __init__(
        self,
        run: RunDir,
        bar: Any,
        metrics: Metrics,
        stop: StopRequest,
        state: dict[str, Any] | None,
        *,
        unit: str,
        keep: int,
    ) -> None:
        self.run_dir, self.bar, self.metrics, self._stop = run, bar, metrics, stop
        self.state = state
        self._unit, self._keep = unit, keep
        self._unsaved = self.state is None

    def take_state(self) -> dict[str, Any] | None:
        """`state`; the reference is dropped, so that a large replay does not stay in memory twice."""
        state, self.state = self.state, None
        return state

    @property
    def stopping(self) -> bool:
        """True after the first Ctrl-C or SIGTERM."""
        return self._stop.requested

    def run(
        self,
        training: Resumable,
        *,
        checkpoint_every: int,
        due: Callable[[], bool] = lambda: False,
        savable: Callable[[], bool] = lambda: True,
        extra: Callable[[Path], None] | None = None,
        faster: str = "",
        agree: Callable[[bool], bool] = bool,
    ) -> None:
        """Advance `training` until it is done; save it every `checkpoint_every` steps, at a stop and at the
        end.

        due: called after each `advance`; True requests an additional save. savable: False while the state is
        incomplete, which postpones saves and stops. extra(folder): writes further files into each
        checkpoint. faster: sentence on what makes the training faster, printed once with an estimate of its
        duration if that is long; empty: no estimate. agree(this process was asked to stop): called before
        each `advance`; True stops (with several ranks, after the same step on all). Raises KeyboardInterrupt,
        with a sentence on how to
        continue, after a stop request.
        """
        estimate = TimeEstimate(self.bar.total, self._unit) if faster else None
        while not training.done:
            if agree(self.stopping) and savable():
                self._stop.requested = True
                break
            before = training.step
            training.advance()
            self._unsaved = True
            self.bar.update(training.step - before)
            if estimate is not None and (sentence := estimate.sentence(training.step)):
                self.bar.write(f"{sentence} {faster}")
            if (crossed(before, training.step, checkpoint_every) or due()) and savable():
                self.save(training, extra)
        if self._unsaved and savable():
            self.save(training, extra)
        self.raise_if_stopped()

    def save(self, training: Resumable, extra: Callable[[Path], None] | None = None) -> None:
        """Write checkpoints/<step> atomically."""
        self.metrics.sync()
        state = dict(training.state_dict()) | {_LOG_LINES: self.metrics.lines}
        with self.run_dir.new_checkpoint(training.step, keep=self._keep) as folder:
            save_state(folder, state)
            if extra is not None:
                extra(folder)
        self._unsaved = False

    def raise_if_stopped(self) -> None:
        """Raise KeyboardInterrupt after a stop request, with what was saved and how to continue."""
        if self.stopping:
            raise KeyboardInterrupt(how_to_continue(self.run_dir, self._unit))


def check_weights(weights: Mapping[str, Any], run: RunDir, remedy: str) -> None:
    """Raise DivergedError for NaN in nested dicts of tensors. To be called while a checkpoint of `run` is
    written, which then does not replace the one before it. remedy: sentence on what to do.
    """
    if found := diverged_words(weights):
        raise DivergedError(found, remedy, last_policy(run))


def diverged_words(weights: Mapping[str, Any], inside: str = "") -> str:
    """Sentence that names the first NaN in nested dicts of tensors; empty without any. inside: prefix of the
    names, such as "actor.".
    """
    for name, value in weights.items():
        if isinstance(value, Mapping):
            if found := diverged_words(value, f"{inside}{name}."):
                return found
        elif isinstance(value, Tensor) and value.is_floating_point() and bool(value.isnan().any()):
            return f"The training has diverged: its weights ({inside}{name}) are NaN and were not saved."
    return ""


def last_policy(run: RunDir) -> str:
    """Sentence on the newest checkpoint, which names its policy if it holds one."""
    if (at := run.latest()) is None:
        return "Nothing was saved yet."
    if not RunDir(at[1]).policy.is_dir():
        return f"The newest checkpoint of {run.path} is of step {at[0]}."
    return f"The policy of step {at[0]} is {run.path}@{at[0]}."


def how_to_continue(run: RunDir, unit: str = "update") -> str:
    """Sentence on what an interrupted run has saved and how to continue it."""
    if (at := run.latest()) is None:
        if any(run.path.glob(f"*/run/{SAVED}")):  # of method=auto, whose stages are runs
            return f"saved the stages so far in {run.path}; the same command with resume=true continues them"
        again = "the same command with resume=true" if run.began() else "the same command"
        return f"nothing was saved yet in {run.path}; {again} starts it again"
    return f"saved {unit} {at[0]} in {run.path}; the same command with resume=true continues it"


@contextmanager
def resumable(
    run: RunDir,
    *,
    total: int,
    label: str,
    unit: str = "update",
    resume: bool = False,
    shown: tuple[str, ...] = (),
    keep: int = 2,
) -> Iterator[RunSession]:
    """Session of `run`; with `resume` it continues from the newest intact checkpoint, if there is one.

    total, label, unit: of the progress bar. shown: scalars in the bar. keep: number of checkpoints to keep.
    The log is truncated to the instant of the checkpoint. Inside the block, SIGINT and SIGTERM only request a
    stop, on which `RunSession.run` acts. A full disk raises DiskFullError that says what was saved and how to
    continue.
    """
    at = run.newest_intact() if resume else None
    step, state = (0, None) if at is None else (at[0], load_state(at[1]))
    lines = None if state is None else state.pop(_LOG_LINES, None)
    with (
        _full_disk_continues(run, unit),
        progress(total, label, unit, initial=step) as bar,
        run.metrics(None if at is None else step, resume_lines=lines, bar=bar) as metrics,
        stop_between_steps() as stop,
    ):
        metrics.shown = shown
        yield RunSession(run, bar, metrics, stop, state, unit=unit, keep=keep)


@contextmanager
def _full_disk_continues(run: RunDir, unit: str) -> Iterator[None]:
    """Say of a full disk that the run continues, not that it has to start again."""
    try:
        yield
    except (OSError, DiskFullError) as error:
        full = explained(error) if isinstance(error, OSError) else error
        if not isinstance(full, DiskFullError):
            raise
        saved = how_to_continue(run, unit)
        raise DiskFullError(full.fact, f"{saved[0].upper()}{saved[1:]}.") from error
