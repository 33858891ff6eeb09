"""Feeds a guarded craft until it is killed: python -m tests.hardware.quad_feeder <driver> <settings>
[watchdog_s].
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from hardware.driver import open_driver
from hardware.states import BodyRates

PATIENT_S = (
    0.3  # of silence: long, so that what lands it sooner is the death and not a stall of a busy machine
)
WATCHDOG_S = float(sys.argv[3]) if len(sys.argv) > 3 else PATIENT_S

with open_driver(sys.argv[1], json.loads(sys.argv[2]), WATCHDOG_S) as quad:
    print(json.dumps({"event": "ready", "t": time.monotonic()}), flush=True)
    while True:
        quad.write(BodyRates(np.zeros(3), 0.52))
        time.sleep(0.02)
