"""Child processes end when their parent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

PARENT = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from robo_rl.core.process_signals import exit_with_parent

def work(_):
    os.write(1, f"{os.getpid()}\\n".encode())  # whole: lines of two processes must not mix
    time.sleep(600)

with ProcessPoolExecutor(2, initializer=exit_with_parent) as pool:
    list(pool.map(work, range(2)))
"""


def _alive(pid: int) -> bool:
    """A zombie counts as ended: it only waits for its parent."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_of_a_pool_end_with_their_killed_parent() -> None:
    """After SIGKILL the parent cannot stop them: they watch it themselves."""
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    workers = [int(process.stdout.readline()) for _ in range(2)]
    assert all(map(_alive, workers))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline_s = time.monotonic() + 20.0
    while any(map(_alive, workers)) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not any(map(_alive, workers))
