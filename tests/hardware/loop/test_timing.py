"""Statistics of a loop with absolute deadlines."""

from __future__ import annotations

import pytest

from hardware.loop.timing import LoopTiming


def test_a_loop_on_time_misses_nothing() -> None:
    timing = LoopTiming(0.01)
    for i in range(100):
        assert timing.begin(5.0 + 0.01 * i) == pytest.approx(0.0, abs=1e-9)
        timing.end(5.0 + 0.01 * i + 0.002)
    assert (timing.ticks, timing.missed, timing.skipped) == (100, 0, 0)
    assert timing.values()["work_ms_p50"] == "2.000"


def test_report_covers_the_run_and_diagnosis_the_present() -> None:
    """100 ticks of 9 ms, then 5,000 of 1 ms: the report's 99th percentile and counts include them."""
    timing = LoopTiming(0.01)
    for i in range(5100):
        timing.begin(0.01 * i)
        timing.end(0.01 * i + (0.009 if i < 100 else 0.001))
    assert timing.figures()["ticks"] == 5100
    assert timing.figures()["work_ms_p99"] == pytest.approx(9.0, rel=0.006)
    assert timing.figures()["work_ms_p50"] == pytest.approx(1.0, rel=0.006)
    assert "work 1.00 ms (p99 8.99)" in str(timing)  # to half a per cent
    assert timing.values()["work_ms_p99"] == "1.000"


def test_late_missed_and_skipped_ticks() -> None:
    """Ticks begin at 0, 13 (3 ms late, done at 21: missed), 50 (two deadlines skipped) and 60 ms."""
    timing = LoopTiming(0.01)
    late = []
    for begin, end in ((0.0, 0.001), (0.013, 0.021), (0.050, 0.051), (0.060, 0.061)):
        late.append(timing.begin(begin))
        timing.end(end)
    assert late == pytest.approx([0.0, 0.003, 0.0, 0.0], abs=1e-9)
    assert (timing.ticks, timing.missed, timing.skipped) == (4, 1, 3)
    assert str(timing).startswith("4 ticks at 100 Hz: 1 missed deadlines, 3 skipped, work 1.00 ms (p99")


def test_late_first_tick_does_not_shift_the_deadlines() -> None:
    """It came 7 ms late; after a skipped deadline, ticks on time count as on time."""
    timing, late = LoopTiming(0.01), list[float]()
    for begin in (0.007, 0.010, 0.020, 0.040, 0.052):
        late.append(timing.begin(begin))
        timing.end(begin)
    assert late == pytest.approx([0.0, 0.0, 0.0, 0.0, 0.002], abs=1e-9)
    assert (timing.missed, timing.skipped) == (0, 1)


def test_clock_that_jumps_back_restarts_the_deadlines() -> None:
    timing = LoopTiming(0.01)
    timing.begin(100.0)
    timing.end(100.001)
    assert timing.begin(3.0) == 0.0
    timing.end(3.001)
    assert (timing.missed, timing.skipped) == (0, 0)
