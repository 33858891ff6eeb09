"""Training from the page: the commands that a user would type, run beside the app with low priority."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robo_rl.apps.recording.episodes import Tally
from robo_rl.apps.recording.learning.child import Child, how_ended
from robo_rl.core.errors import DataError
from robo_rl.data.selection import RULES
from robo_rl.runs.metrics import read_metrics

LEAST_EPISODES = 2
LOOK_S = 1.0  # between two looks at the metrics
METRICS = "metrics.jsonl"
NAMES = {"training": "training", "exporting": "export"}  # state -> name of its process
INTERRUPTED = (128 + signal.SIGINT, -signal.SIGINT)  # exit codes of a verb that was asked to stop
SELECTION = "Learning from"  # beginning of the line that says which episodes were left out
_NEEDED = {"all": "of any kind", "success": "that are complete successes"}
DEFAULT_STEPS = 3000  # of `robo-rl train`
Start = Callable[[str, Sequence[str]], Child]  # (name, words after robo-rl) -> process


def rule_of(words: str) -> str:
    """Value of `learn_from=` in the settings of `robo-rl train`."""
    given = [word.partition("=")[2] for word in shlex.split(words) if word.startswith("learn_from=")]
    return given[-1] if given else RULES[0]


def steps_of(words: Sequence[str]) -> int:
    """Updates of a training with these words, for its progress; an expression counts as the default."""
    given = (
        word.lstrip("+").removeprefix("steps=") for word in words if word.lstrip("+").startswith("steps=")
    )
    try:
        return int(float(next(given, DEFAULT_STEPS)))  # 1e4 is a whole number, too
    except ValueError:
        return DEFAULT_STEPS


@dataclass
class TrainingJob:
    """`robo-rl train` and then `robo-rl export`.

    runs: folder of the runs. words: of the train command. done: called with the new bundle.
    """

    data: Path
    runs: Path
    words: str
    start: Start
    say: Callable[[str, str], None]
    done: Callable[[str], None]
    state: str = "none"  # none, training, exporting, done, stopped, failed
    command: str = ""
    step: int = 0
    steps: int = 0
    loss: float | None = None
    episodes: int = 0
    run: Path | None = None
    left_s: float | None = None  # estimate; None before two looks with progress
    _asked: bool = False  # to stop
    _selection: str = ""  # told line of the training
    _first: tuple[float, int] = (0.0, 0)  # time and step of the first progress
    _child: Child | None = field(default=None, repr=False)
    _read_s: float = 0.0  # time of the last look at the metrics

    @property
    def learn_from(self) -> str:
        """Rule by which the settings select episodes."""
        return rule_of(self.words)

    def begin(self, tally: Tally) -> str:
        """Train on the committed episodes. Raises DataError while a training runs, or with too few."""
        if self._child is not None:
            raise DataError("A training is running already.")
        episodes = tally.trainable(self.learn_from)
        if episodes < LEAST_EPISODES:
            raise DataError(
                f"{tally.episodes} episodes are saved, {tally.failures} of them failures and "
                f"{tally.interrupted} interrupted; a training needs {LEAST_EPISODES} or more "
                f"{_NEEDED.get(self.learn_from, 'that are complete and did not fail')}."
            )
        number = 1
        try:
            while (self.runs / str(number)).exists():
                number += 1
        except OSError as error:  # such as a disk that was unplugged
            raise DataError(f"A training cannot be written to {self.runs}: {error.strerror}.") from error
        self.run = self.runs / str(number)
        self.episodes, self.step, self.loss, self.left_s = episodes, 0, None, None
        self._asked, self._selection = False, ""
        given = shlex.split(self.words)
        self.steps = steps_of(given)
        return self._start("training", ["train", f"data={self.data}", f"out={self.run}", *given])

    def stop(self) -> str:
        """End the training; its run keeps a checkpoint."""
        if self._child is None:
            raise DataError("No training is running.")
        self._asked = True
        self._child.ask_to_stop()
        return "the training is asked to stop"

    def tick(self) -> None:
        """Read the progress, and go on with the next command."""
        if self._child is None or self.run is None:
            return
        if self.state == "training" and time.monotonic() - self._read_s > LOOK_S:
            self._read_s = time.monotonic()
            self._read_progress()
            self._tell_selection()
        if (code := self._child.code) is None:
            return
        child, self._child = self._child, None
        said = child.last.removeprefix("robo-rl: ")
        if self._asked and (said.startswith("stopped") or code in INTERRUPTED or "KeyboardInterrupt" in said):
            told = said if said.startswith("stopped") else f"stopped; {self._way_on()}"
            self.state = "stopped"
            self.say(f"the {child.name} was {told}", "info")
        elif code != 0:
            way_on = f"; {self._way_on()}" if code < 0 else ""  # an error says what to do
            self.state = "failed"
            self.say(f"The {child.name} {how_ended(code, child.last)}{way_on}", "error")
        elif self.state == "training":
            self._read_progress()
            policy, bundle = self.run / "policy", self.run / "bundle"
            self._start("exporting", ["export", f"policy={policy}", "noise=zero", f"out={bundle}"])
        else:
            self.state = "done"
            self.done(str(self.run / "bundle"))

    def view(self) -> dict[str, Any]:
        """What the page shows."""
        return {
            "state": self.state,
            "command": self.command,
            "step": self.step,
            "steps": self.steps,
            "loss": self.loss,
            "left_s": self.left_s,
            "episodes": self.episodes,
            "run": "" if self.run is None else str(self.run),
            "learn_from": self.learn_from,
        }

    def close(self) -> None:
        """Ask what runs to stop; it saves a checkpoint and ends by itself, maybe after the app."""
        if self._child is None or self.run is None:
            return
        self._child.ask_to_stop()
        self._child = None
        self.say(f"the {NAMES[self.state]} was stopped; {self._way_on()}", "info")

    def _way_on(self) -> str:
        """Clause with the command that goes on after the running one has ended before its time."""
        if self.state == "exporting":
            return f"export again with: {self.command}"
        if self.run is not None and os.path.isfile(self.run / "run.json"):  # False on a lost disk
            return f"continue it with: {self.command} resume=true"
        return f"start it again with: {self.command}"  # it had not begun to write

    def _start(self, state: str, words: list[str]) -> str:
        self.state, self.command = state, shlex.join(["robo-rl", *words])
        self._child = self.start(NAMES[state], words)
        return self.command

    def _tell_selection(self) -> None:
        """Say which episodes are left out, once."""
        lines = [] if self._child is None else list(self._child.lines)
        found = next((line for line in lines if line.startswith(SELECTION)), "")
        if found != self._selection:
            self._selection = found
            self.say(found, "info")

    def _read_progress(self) -> None:
        """Step and loss of the newest line of the run's metrics."""
        if self.run is None:
            return
        try:
            rows = [row for row in read_metrics(self.run / METRICS) if "base/loss" in row]
        except (OSError, DataError):  # the training itself says what is wrong with its folder
            return
        if rows:
            before, now_s = self.step, time.monotonic()
            self.step, self.loss = int(rows[-1]["step"]), round(float(rows[-1]["base/loss"]), 4)
            if before == 0:
                self._first = now_s, self.step
            elif self.step > max(before, self._first[1]):
                per_step_s = (now_s - self._first[0]) / (self.step - self._first[1])
                self.left_s = round(per_step_s * (self.steps - self.step))
