"""Training from the page: which episodes count, and how it ends."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from robo_rl.apps.recording.episodes import Tally
from robo_rl.apps.recording.learning import training
from robo_rl.apps.recording.learning.training import TrainingJob
from robo_rl.core.errors import DataError


class FakeChild:
    """A process that ends when a test says so."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name, self.words = name, words
        self.lines: list[str] = []
        self.code: int | None = None

    @property
    def last(self) -> str:
        return self.lines[-1] if self.lines else ""

    def ask_to_stop(self) -> None:
        self.lines.append("robo-rl: stopped; saved update 6 in runs/1")
        self.code = 130


class Bench:
    """A job, the processes that it started, and what it said."""

    def __init__(self, folder: Path, words: str = "steps=4") -> None:
        self.children: list[FakeChild] = []
        self.said: list[tuple[str, str]] = []
        self.done: list[str] = []

        def start(name: str, given: Sequence[str]) -> Any:
            self.children.append(FakeChild(name, given))
            return self.children[-1]

        def say(text: str, level: str = "info") -> None:
            self.said.append((text, level))

        self.job = TrainingJob(folder / "data", folder / "runs", words, start, say, self.done.append)


def test_failures_do_not_count_unless_they_are_learned_from(tmp_path: Path) -> None:
    """robo-rl train leaves failed episodes out, so two failures and a success are too few."""
    tally = Tally(episodes=3, successes=1, failures=2)
    with pytest.raises(
        DataError, match=r"3 episodes are saved, 2 of them failures and 0 interrupted; .* 2 or more that are"
    ):
        Bench(tmp_path).job.begin(tally)
    assert Bench(tmp_path, "steps=4 learn_from=all").job.begin(tally).startswith("robo-rl train data=")


def test_interrupted_episodes_do_not_count_either(tmp_path: Path) -> None:
    """Two saved episodes, of which one was running when the app ended; or successes alone, if so asked."""
    with pytest.raises(DataError, match="1 interrupted; a training needs 2 or more that are complete"):
        Bench(tmp_path).job.begin(Tally(episodes=2, successes=1, interrupted=1))
    with pytest.raises(DataError, match="2 or more that are complete successes"):
        Bench(tmp_path, "learn_from=success").job.begin(Tally(episodes=3, successes=1))
    assert Bench(tmp_path).job.begin(Tally(episodes=3, successes=1, interrupted=1))


def test_steps_may_be_written_as_the_verb_reads_them(tmp_path: Path) -> None:
    """An error here ended the app: the settings are checked when it starts, by the verb's own rules."""
    for words, steps in (
        ("steps=1e4", 10_000),
        ("steps=2_000", 2000),
        ("++steps=5", 5),
        ("steps=int(5)", 3000),
        ("", 3000),
    ):
        bench = Bench(tmp_path, words)
        bench.job.begin(Tally(2, 2, 0))
        assert bench.job.steps == steps


def test_a_training_that_the_operator_stops_has_not_failed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.job.begin(Tally(2, 2, 0))
    bench.job.stop()
    bench.job.tick()
    assert bench.job.state == "stopped"
    assert bench.said == [("the training was stopped; saved update 6 in runs/1", "info")]


@pytest.mark.parametrize("begun", [True, False])
def test_the_end_of_the_app_tells_how_a_training_goes_on(tmp_path: Path, begun: bool) -> None:
    """Ctrl-C ended it without a word; its own last line came after the app, and was lost. A run that has not
    logged anything yet saves a checkpoint too; one without a folder cannot be resumed.
    """
    bench = Bench(tmp_path)
    bench.job.begin(Tally(2, 2, 0))
    if begun:
        (tmp_path / "runs/1").mkdir(parents=True)
        (tmp_path / "runs/1/run.json").write_text("{}")
    bench.job.close()
    ((told, _),) = bench.said
    command = f"robo-rl train data={tmp_path}/data out={tmp_path}/runs/1 steps=4"
    how = f"continue it with: {command} resume=true" if begun else f"start it again with: {command}"
    assert told == f"the training was stopped; {how}"


def test_the_end_of_the_app_tells_how_to_export_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.job.begin(Tally(2, 2, 0))
    bench.children[0].code = 0
    bench.job.tick()
    bench.job.close()
    ((told, _),) = bench.said
    run = f"{tmp_path}/runs/1"
    command = f"robo-rl export policy={run}/policy noise=zero out={run}/bundle"
    assert told == f"the export was stopped; export again with: {command}"


def test_a_training_that_ends_by_an_error_has_failed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.job.begin(Tally(2, 2, 0))
    bench.children[0].lines.append("robo-rl: the disk is full")
    bench.children[0].code = 1
    bench.job.tick()
    assert bench.job.state == "failed"
    ((text, level),) = bench.said
    assert "exit code 1: robo-rl: the disk is full" in text
    assert level == "error"


def test_episodes_that_are_left_out_are_told_and_the_policy_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "LOOK_S", 0.0)
    bench = Bench(tmp_path)
    bench.job.begin(Tally(3, 2, 1))
    bench.children[0].lines.append("Learning from 2 of the 3 episodes; left out: 1 marked as failed.")
    bench.job.tick()
    bench.job.tick()
    assert bench.said == [("Learning from 2 of the 3 episodes; left out: 1 marked as failed.", "info")]
    bench.children[0].code = 0
    bench.job.tick()
    bench.children[1].code = 0
    bench.job.tick()
    assert [child.words[0] for child in bench.children] == ["train", "export"]
    assert bench.job.state == "done"
    assert bench.done == [str(tmp_path / "runs" / "1" / "bundle")]


def test_a_folder_that_cannot_be_read_ends_no_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The button is refused by a sentence; a damaged line of the metrics hides the progress alone."""
    bench = Bench(tmp_path)
    monkeypatch.setattr(training, "LOOK_S", 0.0)
    bench.job.begin(Tally(2, 2, 0))
    (tmp_path / "runs/1").mkdir(parents=True)
    (tmp_path / "runs/1/metrics.jsonl").write_bytes(bytes(8) + b'\n{"step": 1}\n')
    bench.job.tick()
    assert (bench.job.state, bench.job.step) == ("training", 0)
    bench.job.close()

    def lost(path: Path) -> bool:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "is_file", lost)
    bench.job.begin(Tally(2, 2, 0))
    bench.children[-1].code = -7
    bench.job.tick()
    assert bench.job.state == "failed"
    monkeypatch.setattr(Path, "exists", lost)
    with pytest.raises(DataError, match=r"cannot be written to .*/runs: Input/output error\."):
        bench.job.begin(Tally(2, 2, 0))


@pytest.mark.parametrize("state", ["training", "exporting"])
def test_a_killed_process_names_its_signal_and_the_way_on(tmp_path: Path, state: str) -> None:
    """Its last line was an earlier one, such as the time that the training takes, and no cause."""
    bench = Bench(tmp_path)
    bench.job.begin(Tally(2, 2, 0))
    if state == "exporting":
        bench.children[0].code = 0
        bench.job.tick()
    bench.children[-1].lines.append("This will take about 8 min: 2967 updates of 0.16 s.")
    bench.children[-1].code = -9
    bench.job.tick()
    assert bench.job.state == "failed"
    name, how = {"training": ("training", "start it"), "exporting": ("export", "export")}[state]
    again = f"{how} again with: {bench.job.command}"
    assert bench.said == [
        (f"The {name} was killed by SIGKILL (from outside, or out of memory); {again}", "error")
    ]


@pytest.mark.parametrize(
    ("code", "last"),
    [
        (1, "KeyboardInterrupt"),
        (-6, "  what():  KeyboardInterrupt: <EMPTY MESSAGE>"),
        (130, "export: interrupted."),
        (-2, ""),
    ],
)
def test_an_export_that_the_operator_stops_has_not_failed(tmp_path: Path, code: int, last: str) -> None:
    """Stopped while it imports, before it can answer the signal by a sentence."""
    bench = Bench(tmp_path)
    bench.job.begin(Tally(2, 2, 0))
    bench.children[0].code = 0
    bench.job.tick()
    bench.job.stop()
    bench.children[1].lines[:] = [last] if last else []
    bench.children[1].code = code
    bench.job.tick()
    assert bench.job.state == "stopped"
    assert bench.said == [(f"the export was stopped; export again with: {bench.job.command}", "info")]
