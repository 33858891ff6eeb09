"""The first Ctrl-C is acknowledged and waits for a complete state; the second stops at once."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hardware.bus.shield import shielded
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.cli.stopped import UNITS
from robo_rl.apps.cli.verbs import VERBS
from robo_rl.core.files.state_io import save_state
from robo_rl.runs.resumable import resumable
from robo_rl.runs.run_dir import RunDir
from robo_rl.runs.signals import SAME_S, stop_between_steps


def test_first_signal_requests_and_second_interrupts(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_between_steps() as stop:
        assert not stop.requested
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        assert "once more stops at once" in capfd.readouterr().err
        signal.raise_signal(signal.SIGTERM)  # the same request, told twice
        time.sleep(SAME_S + 0.1)
        with pytest.raises(KeyboardInterrupt) as caught:
            signal.raise_signal(signal.SIGINT)
        assert caught.value.args == ()  # the verb tells what it has left
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("verb", ["train", "pretrain", "finetune", "distill"])
def test_a_second_signal_names_the_checkpoint_that_is_kept(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first checkpoint there is none; after the first log line the same command is refused
    without resume=true.
    """
    out, saved = tmp_path / "run", False

    def main(config: Any) -> None:
        with RunDir.create(out, config, resume=config.resume) as run:
            if saved:
                with run.new_checkpoint(40) as folder:
                    save_state(folder, {})
            stopped_twice(run)

    module, function = VERBS[verb].target.split(":")
    monkeypatch.setattr(import_module(module), function, main)
    words = [verb, f"out={out}", "teacher=x" if verb == "distill" else "base=x"]
    words = words if verb in ("distill", "finetune") else [verb, f"out={out}", "data=x"]
    assert robo_rl(words) == 130
    again = "the same command with resume=true starts it again"
    assert capsys.readouterr().err.endswith(f"stopped; nothing was saved yet in {out}; {again}.\n")
    saved = True
    assert robo_rl([*words, "resume=true"]) == 130
    kept = f"saved {UNITS[verb]} 40 in {out}; the same command with resume=true continues it"
    assert capsys.readouterr().err.endswith(f"stopped; {kept}.\n")


def stopped_twice(run: RunDir) -> None:
    """A training that is stopped at once."""
    with resumable(run, total=50, label="train", unit="step") as session:
        session.metrics.log(0, {"loss": 1.0})
        signal.raise_signal(signal.SIGINT)
        time.sleep(SAME_S + 0.1)
        signal.raise_signal(signal.SIGINT)


TRAINING = """
import fcntl, sys, termios, time
from pathlib import Path
from hardware.bus.shield import shielded
from robo_rl.runs.signals import stop_between_steps

fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the kernel then tells this process when its terminal is gone
with stop_between_steps() as stop:
    Path(sys.argv[1]).write_text("running")
    while not stop.requested:
        print("step", flush=True)
        time.sleep(0.01)
    print("saving", file=sys.stderr, flush=True)  # as a progress bar does
    Path(sys.argv[1]).write_text("saved")
"""


@pytest.mark.parametrize("piped", [False, True])
def test_a_training_is_saved_when_its_terminal_is_gone(tmp_path: Path, piped: bool) -> None:
    """A lost ssh connection: the kernel sends SIGHUP, and every write to the terminal fails from then on; so
    does one to `| tee`, which ends by the same signal.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` may run the tests
    ours, theirs = pty.openpty()
    read, write = os.pipe()
    note = tmp_path / "note"
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(note)],
        stdin=theirs,
        stdout=write if piped else theirs,
        stderr=write if piped else theirs,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    signal.signal(signal.SIGHUP, before)
    os.close(theirs)
    os.close(write)
    while not (note.exists() and note.read_text()):
        time.sleep(0.01)
    os.close(ours)
    time.sleep(0.1)  # a print before the signal would fail, and no handler could help
    os.close(read)
    assert process.wait(timeout=30) == 0
    assert note.read_text() == "saved"


def test_a_lost_terminal_does_not_interrupt_the_stop_of_a_robot() -> None:
    """The second signal of a lost connection: a job's SIGHUP often follows a Ctrl-C."""
    came: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: came.append(number))
    try:
        with shielded():
            signal.raise_signal(signal.SIGHUP)
        assert not came
        signal.raise_signal(signal.SIGHUP)
        assert came == [signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)
