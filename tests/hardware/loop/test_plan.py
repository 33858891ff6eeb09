"""How much of a chunk is left, and how much of that is gone when the next one comes."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.loop.inference import Running
from hardware.loop.plan import RunningPlan

CHUNK = np.arange(16.0)[:, None]


def ticked(plan: RunningPlan, times: int) -> RunningPlan:
    for _ in range(times):
        plan.tick()
    return plan


def left(running: Running | None) -> list[float]:
    assert running is not None
    return [float(value) for value in running.action[:, 0]]


def test_the_old_chunk_from_where_it_is() -> None:
    """Asked at 0, answered 3 periods of 0.02 s later, asked again at 8: eight are left, and four will be
    gone.
    """
    plan = RunningPlan(0.02)
    assert plan.running() is None
    plan.asked(10.0)
    ticked(plan, 3).answered(CHUNK, 10.05)
    assert left(plan.running()) == list(range(3, 16))
    running = ticked(plan, 5).running()
    assert left(running) == list(range(8, 16))
    assert running is not None
    assert running.certain == 3 + 1
    plan.asked(10.16)
    assert left(ticked(plan, 2).running()) == list(range(10, 16))  # the old one, until the new one is there
    ticked(plan, 1).answered(CHUNK + 100.0, 10.22)
    assert left(plan.running())[0] == 103.0


def test_the_longest_delay_counts_and_is_forgotten() -> None:
    """A late one among the last ten is what the next may take; no more is certain than is left."""
    plan = RunningPlan(0.02)
    for i, delay_s in enumerate([0.01, 0.2, *[0.01] * 9]):
        plan.asked(float(i))
        plan.answered(CHUNK, i + delay_s)
    running = plan.running()
    assert running is not None
    assert running.certain == 11
    running = ticked(plan, 12).running()
    assert running is not None
    assert (len(running.action), running.certain) == (4, 4)
    plan.asked(50.0)
    plan.answered(CHUNK, 50.01)
    running = plan.running()
    assert running is not None
    assert running.certain == 2


@pytest.mark.parametrize("how", ["played", "reset"])
def test_nothing_is_left(how: str) -> None:
    """Of a chunk that has been played, and after a reset; an answer from before the reset does not count."""
    plan = RunningPlan(0.02)
    plan.asked(0.0)
    plan.answered(CHUNK, 0.01)
    if how == "played":
        assert ticked(plan, 16).running() is None
        return
    plan.asked(0.1)
    plan.reset()
    plan.answered(CHUNK, 0.2)
    assert plan.running() is None
