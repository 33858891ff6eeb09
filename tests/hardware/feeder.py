"""Feeds a guarded arm until it is killed: python -m tests.hardware.feeder <driver> <settings as JSON>
[watchdog_s].
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from hardware.driver import open_driver
from hardware.states import JointCommand

PATIENT_S = (
    0.3  # of silence: long, so that what stops the arm sooner is the death and not a stall of a busy machine
)
WATCHDOG_S = float(sys.argv[3]) if len(sys.argv) > 3 else PATIENT_S

with open_driver(sys.argv[1], json.loads(sys.argv[2]), WATCHDOG_S) as arm:
    goal = np.full(len(arm.names), 1.0)
    print(json.dumps({"event": "ready", "t": time.monotonic(), "guard": arm.pid}), flush=True)  # type: ignore[attr-defined]
    while True:
        arm.write(JointCommand(goal))
        time.sleep(0.02)
