"""Training loop shared by verbs: saved when due and at a stop, resumed to the same log."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hardware.checks.faulty_disk import full_disk
from robo_rl.core.errors import CheckpointError, DiskFullError
from robo_rl.runs.metrics import Metrics, read_metrics
from robo_rl.runs.resumable import RunSession, crossed, resumable
from robo_rl.runs.run_dir import RunDir


@dataclass
class _Config:
    seed: int = 0
    resume: bool = False


class _Counter:
    """Counts to 10 by twos, after two burn-in rounds without a step."""

    def __init__(self, session: RunSession, ctrl_c_at: int | None = None) -> None:
        self.session, self.ctrl_c_at = session, ctrl_c_at
        self.step = self.burn_in = self.total = 0
        self.saves: list[int] = []

    @property
    def done(self) -> bool:
        return self.step >= 10

    def advance(self) -> None:
        if self.burn_in < 2:
            self.burn_in += 1
        else:
            self.step += 2
            self.total += self.step
            self.session.metrics.log(self.step, {"total": float(self.total)})
        if self.step == self.ctrl_c_at:
            signal.raise_signal(signal.SIGTERM)

    def state_dict(self) -> Mapping[str, Any]:
        self.saves.append(self.step)
        return {"step": self.step, "burn_in": self.burn_in, "total": self.total}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step, self.burn_in, self.total = state["step"], state["burn_in"], state["total"]


def _train(path: Path, *, resume: bool = False, ctrl_c_at: int | None = None) -> _Counter:
    run = RunDir.create(path, _Config(resume=resume), resume=resume)
    with resumable(run, total=10, label="count", unit="step", resume=resume) as session:
        counter = _Counter(session, ctrl_c_at)
        if (state := session.take_state()) is not None:
            counter.load_state_dict(state)
        session.run(counter, checkpoint_every=4, savable=lambda: counter.burn_in == 2)
    return counter


def test_it_saves_when_due_and_at_the_end(tmp_path: Path) -> None:
    """Every 4 steps and once at the end; two checkpoints stay."""
    counter = _train(tmp_path / "run")
    assert counter.saves == [4, 8, 10]
    assert [step for step, _ in RunDir(tmp_path / "run").steps()] == [8, 10]


def test_a_stop_saves_and_the_resumed_run_has_the_same_log(tmp_path: Path) -> None:
    """SIGTERM as Ctrl-C: saved after the running step, with a sentence on how to continue."""
    _train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt, match=r"saved step 6 in .*resume=true continues"):
        _train(tmp_path / "cut", ctrl_c_at=6)
    assert _train(tmp_path / "cut", resume=True).total == 30
    logs = [list(read_metrics(tmp_path / run / "metrics.jsonl")) for run in ("whole", "cut")]
    assert logs[0] == logs[1]


def test_stop_waits_for_a_complete_state(tmp_path: Path) -> None:
    """A burn-in cannot be saved: it is finished first."""
    with pytest.raises(KeyboardInterrupt, match="saved step 0"):
        _train(tmp_path / "run", ctrl_c_at=0)
    assert _train(tmp_path / "run", resume=True).saves == [4, 8, 10]


def test_a_finished_run_is_not_saved_again(tmp_path: Path) -> None:
    _train(tmp_path / "run")
    assert _train(tmp_path / "run", resume=True).saves == []


def test_multiples_that_are_crossed() -> None:
    """Steps advance by several lanes: (before, now] may skip the multiple itself."""
    assert crossed(3, 5, 4)
    assert crossed(3, 4, 4)
    assert not crossed(4, 7, 4)
    assert not crossed(0, 100, 0)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("file", ["state.json", "state.safetensors", "checksums.json"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Two checkpoints are kept: the run continues from the older one with a message and ends with the same
    result.
    """
    whole = _train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path / "run", ctrl_c_at=8)
    steps = [step for step, _ in RunDir.open(tmp_path / "run").steps()]
    assert steps == [4, 8]
    _flip(tmp_path / "run/checkpoints/00000008" / file)
    resumed = _train(tmp_path / "run", resume=True)
    said = capsys.readouterr().out
    assert "00000008 is damaged" in said
    assert "is kept as 00000008.damaged. The run continues from step 4." in said
    assert (resumed.step, resumed.total) == (whole.step, whole.total)
    logs = [list(read_metrics(tmp_path / name / "metrics.jsonl")) for name in ("whole", "run")]
    assert logs[0] == logs[1]


def test_damaged_checkpoints_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path / "run", ctrl_c_at=8)
    for _, folder in RunDir.open(tmp_path / "run").steps():
        _flip(folder / "state.safetensors")
    with pytest.raises(CheckpointError, match="There is no older one: restore a checkpoint from a copy"):
        _train(tmp_path / "run", resume=True)


def test_a_full_disk_says_that_the_run_continues(tmp_path: Path) -> None:
    """Not that it has to start again, which would cost what was trained so far."""
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path / "run", ctrl_c_at=6)
    said = r"The disk is full.* Free some space\. Saved step 6 in .*resume=true continues it\.$"
    with full_disk(tmp_path, room_bytes=10), pytest.raises(DiskFullError, match=said):
        _train(tmp_path / "run", resume=True)
    assert _train(tmp_path / "run", resume=True).total == 30


def test_a_full_disk_at_the_start_of_the_log_leaves_no_logger_open(tmp_path: Path) -> None:
    """The thread of TensorBoard wrote on, into files of the resumed run."""
    with Metrics(tmp_path, logger=None) as metrics:
        metrics.log(1, {"loss": 1.0})
    before = threading.active_count()
    with full_disk(tmp_path, room_bytes=0), pytest.raises(DiskFullError, match=r"metrics\.jsonl"):
        Metrics(tmp_path, resume_step=1)
    assert threading.active_count() == before
