"""The sender of a stopping signal is named if it is known."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from robo_rl.core.process_signals import ended_by
from robo_rl.runs.signals import SUPERVISOR, signal_source

ROOT = Path(__file__).resolve().parents[2]
AT_A_TERMINAL = """
import fcntl, signal, termios
from robo_rl.runs.signals import signal_source
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
print(signal_source(signal.SIGINT), signal_source(signal.SIGTERM))
"""


def test_a_signal_without_a_terminal_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kill -INT`, `ros2 launch` and systemd are not the terminal."""
    monkeypatch.delenv(SUPERVISOR, raising=False)
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "__stdin__", nothing)
        assert signal_source(signal.SIGINT) == "SIGINT"
    monkeypatch.setattr(sys, "__stdin__", None)
    assert signal_source(signal.SIGINT) == "SIGINT"
    assert signal_source(signal.SIGTERM) == "SIGTERM"


def test_in_the_foreground_of_a_terminal_it_is_ctrl_c() -> None:
    """A real terminal with the process in its foreground."""
    ours, theirs = pty.openpty()
    try:
        environment = {key: value for key, value in os.environ.items() if key != SUPERVISOR}
        done = subprocess.run(
            [sys.executable, "-c", AT_A_TERMINAL],
            stdin=theirs,
            env=environment | {"PYTHONPATH": str(ROOT)},
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout.split() == ["Ctrl-C", "SIGTERM"]


def test_nohup_outlives_its_terminal() -> None:
    """A lost ssh connection is a safe stop, unless the user wants the program to continue (nohup)."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert signal.SIGHUP in ended_by()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert ended_by() == (signal.SIGINT, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signal_of_the_supervisor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb stops its nodes by SIGINT; if it is killed, the kernel sends them SIGTERM."""
    monkeypatch.setenv(SUPERVISOR, f"{os.getppid()} record")
    assert signal_source(signal.SIGINT) == "robo-rl record stops it"
    assert signal_source(signal.SIGTERM) == "SIGTERM"
    monkeypatch.setenv(SUPERVISOR, "1 up" if os.getppid() != 1 else "2 up")
    assert signal_source(signal.SIGTERM) == signal_source(signal.SIGINT) == "robo-rl up is gone"
