"""Waiting on a DDS bus, with a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hardware.bus.dds.bus import DdsBus

ROOT = Path(__file__).resolve().parents[3]
SOON_S = 10.0  # a busy machine may take its time; nothing waits for as long when all is well


def spin_for(bus: DdsBus, seconds: float) -> None:
    """Spin for a fixed time."""
    late_s = bus.now() + seconds
    bus.spin(lambda: bus.now() > late_s)


def wait_for(bus: DdsBus, true: Callable[[], bool]) -> None:
    """Spin until the condition is true; fail after a time limit."""
    late_s = time.monotonic() + SOON_S
    bus.spin(lambda: true() or time.monotonic() > late_s)
    assert true(), "it did not happen in time"
