"""Simulators that raise, die and hang in real processes: the parent reports it soon and leaves no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest
import torch

from robo_rl.core.errors import EnvError, MissingDependencyError
from sim.vec.workers import WorkerVecEnv
from tests.sim.vec.lanes import CountLane, FailingLane, make

ROOT = Path(__file__).parents[3]


def gone(pid: int) -> bool:
    """True for an ended process; an orphan may wait for the system to collect it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def wait_until_gone(pids: list[int], limit_s: float = 5.0) -> bool:
    deadline_s = time.monotonic() + limit_s
    while not all(map(gone, pids)) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return all(map(gone, pids))


def fail_in_step_2(how: str, workers: int, timeout_s: float = 60.0) -> tuple[str, float, WorkerVecEnv]:
    """(message, duration, environment)."""
    env = WorkerVecEnv(make(FailingLane, how=how, seed=2), 4, workers, timeout_s=timeout_s)
    env.reset(count())
    env.step(torch.zeros(4, 1))
    start_s = time.monotonic()
    with pytest.raises(EnvError) as caught:
        env.step(torch.zeros(4, 1))
    return str(caught.value), time.monotonic() - start_s, env


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_arrives_with_its_traceback(workers: int) -> None:
    """The message names the failing line and the seed that reproduces it."""
    message, _, env = fail_in_step_2("raise", workers)
    assert "ValueError: the gripper fell off" in message
    assert "lanes.py" in message
    assert "2: 2, 1" in message  # lane 2 ran seed 2 and had made 1 step
    assert all(map(gone, env.worker_pids))


@pytest.mark.parametrize(
    ("how", "words"),
    [("exit", "exit code 7"), ("kill", "SIGKILL"), ("segfault", "SIGSEGV")],
)
def test_a_death_is_reported_within_a_second(how: str, words: str) -> None:
    """Killed by the system for memory, or crashed in C: the parent must not wait for a reply."""
    message, took_s, env = fail_in_step_2(how, 2)
    assert took_s < 1.0
    assert words in message
    assert "lanes 2-3" in message
    assert all(map(gone, env.worker_pids))


def test_a_crash_in_c_shows_where_python_was() -> None:
    """The signal's name alone does not show which simulator call crashed."""
    message, _, _ = fail_in_step_2("segfault", 2)
    assert "lanes.py" in message


def test_a_hang_trips_the_time_limit() -> None:
    """A simulator in an endless loop is killed after timeout_s, and the message shows where it hung."""
    message, took_s, env = fail_in_step_2("hang", 2, timeout_s=0.5)
    assert 0.5 <= took_s < 2.0
    assert "did not answer within 0.5 s" in message
    assert "in fail" in message
    assert all(map(gone, env.worker_pids))


def test_a_death_between_steps_is_found_by_the_next() -> None:
    """The parent is learning when the worker dies, not waiting for it."""
    env = WorkerVecEnv(make(), 2, 2)
    env.reset(count())
    os.kill(env.worker_pids[1], signal.SIGKILL)
    assert wait_until_gone([env.worker_pids[1]])
    with pytest.raises(EnvError, match="SIGKILL"):
        env.step(torch.zeros(2, 1))
    with pytest.raises(EnvError, match="closed"):
        env.step(torch.zeros(2, 1))


def test_failing_constructor_is_reported() -> None:
    """A user's mistake keeps its class and message, without the worker's traceback."""
    with pytest.raises(MissingDependencyError, match=r"^install it$"):
        WorkerVecEnv(make(UnbuildableLane), 2, 2)


class UnbuildableLane(CountLane):
    def __init__(self) -> None:
        raise MissingDependencyError("install it")


SCRIPT = """
import sys, time
from itertools import count
import torch
from sim.vec.workers import WorkerVecEnv
from tests.sim.vec.lanes import CountLane, FailingLane, make

if __name__ == "__main__":
    env = WorkerVecEnv(make(FailingLane, how="hang", at=3), 2, 2)
    env.reset(count())
    print(*env.worker_pids, flush=True)
    for _ in range(3):
        env.step(torch.zeros(2, 1))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_no_orphans_when_the_parent_goes(how: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C goes to the entire group, SIGKILL to the parent only, while workers run simulator code."""
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT)
    parent = start(script)
    pids = [int(pid) for pid in read_line(parent).split()]
    assert len(pids) == 2
    time.sleep(0.3)  # into the step that hangs
    if how == signal.SIGINT:
        os.killpg(parent.pid, how)
    else:
        parent.send_signal(how)
    parent.communicate(timeout=60.0)
    assert wait_until_gone(pids)


def start(script: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        text=True,
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_script_without_a_main_guard_is_reported(tmp_path: Path) -> None:
    """Workers import the main script. One that starts workers when imported fails with an explanation."""
    script = tmp_path / "mine.py"
    script.write_text(
        "from sim.vec.workers import WorkerVecEnv\n"
        "from tests.sim.vec.lanes import CountLane, make\n"
        "WorkerVecEnv(make(CountLane), 1, 1)\n"
    )
    run = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1
    assert 'below `if __name__ == "__main__":`' in run.stderr.splitlines()[-1]
