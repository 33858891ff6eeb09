"""Scheduling of a control loop before other programs of the machine."""

from __future__ import annotations

import os
import sys

PRIORITY = 10  # below that of ros2_control's controller manager, 50


def run_before_other_programs() -> bool:
    """Schedule the calling thread by SCHED_FIFO, before every program of ordinary priority.

    Threads and processes that it starts later keep the ordinary one. Returns False where the system does not
    permit it: it takes root, or a limit `rtprio` of the user's.
    """
    if sys.platform != "linux":
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
    except PermissionError:
        return False
    return True
