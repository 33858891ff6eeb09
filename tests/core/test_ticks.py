"""Deadlines are absolute."""

from __future__ import annotations

from itertools import islice

import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.core.ticks import ticks


class Clock:
    """A clock that advances by sleeping only; each sleep overshoots by 0.1 ms, as real ones do."""

    def __init__(self) -> None:
        self.now_s = 5.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + 1e-4


def test_overshoot_never_adds_up() -> None:
    """1000 ticks at 200 Hz with 0.1 ms oversleep each: the last is 0.1 ms late, not 100 ms."""
    clock = Clock()
    late_s = list(islice(ticks(200.0, clock, clock.sleep), 1001))
    assert max(late_s) < 1.1e-4
    assert abs(clock.now_s - 5.0 - 5.0) < 2e-4


def test_missed_ticks_are_skipped_not_burst() -> None:
    """A tick that takes 2.5 periods is followed by the third deadline, once."""
    clock, starts_s = Clock(), []
    for i, _ in enumerate(ticks(10.0, clock, clock.sleep)):
        starts_s.append(clock.now_s - 5.0)
        clock.now_s += 0.25 if i == 0 else 0.001
        if i == 2:
            break
    assert [round(s, 1) for s in starts_s] == [0.0, 0.2, 0.3]


@pytest.mark.parametrize("rate_hz", [0.0, -5.0, float("nan"), float("inf")])
def test_invalid_rate_is_refused(rate_hz: float) -> None:
    """rate_hz=0 is a user's mistake, not a ZeroDivisionError."""
    with pytest.raises(ConfigError, match="positive"):
        next(ticks(rate_hz))
