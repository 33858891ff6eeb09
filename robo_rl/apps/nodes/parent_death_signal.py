"""A node that `robo-rl up` looks after: it comes to rest when its keeper is gone, however that ended."""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

from robo_rl.runs.signals import KEEPER

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def stop_with_parent(keeper: int) -> None:
    """Let the kernel send SIGTERM when the keeper dies; at once where it is dead already."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != keeper:
        sys.exit("tended: whoever started this node is gone.")


if __name__ == "__main__":
    stop_with_parent(int(sys.argv[1]))
    os.environ[KEEPER] = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module("robo_rl.apps.node", run_name="__main__", alter_sys=True)
