"""Stamps of commands increase, whatever the clock does."""

from __future__ import annotations

import itertools

from hardware.bus.wire_values import join_time, split_time
from hardware.nodes.shared.send_clock import SendClock
from tests.hardware.scripted_bus import ScriptedBus


class _Clock(ScriptedBus):
    """A clock that stands still, runs, and is set back."""

    def __init__(self, *times_s: float) -> None:
        super().__init__()
        self.times_s = list(times_s)

    def stamp(self) -> float:
        return self.times_s.pop(0)


class _Time:
    def __init__(self, sec: int, nanosec: int) -> None:
        self.sec, self.nanosec = sec, nanosec


def test_stamps_increase() -> None:
    """Also on the wire, where nanoseconds are finer than a double of today's time."""
    clock = SendClock(_Clock(0.0, 0.0, 1.79e9, 1.79e9, 1.7e9, 1.7e9, 1.79e9 + 1.0))
    stamps_s = [clock.stamp() for _ in range(7)]
    sent_s = [join_time(_Time(**split_time(stamp_s))) for stamp_s in stamps_s]
    for told_s in (stamps_s, sent_s):
        assert all(later > before for before, later in itertools.pairwise(told_s))
    assert stamps_s[-1] == 1.79e9 + 1.0, "the clock again, once it is ahead"
