"""Number of actions left of a chunk, and how many of them will be played before the next one arrives."""

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


def test_rest_of_the_chunk_and_its_frozen_part() -> None:
    """Requested at 0, answered 3 periods of 0.02 s later, requested at 8: eight left, four frozen."""
    plan = RunningPlan(0.02)
    assert plan.running() is None
    plan.asked(10.0)
    ticked(plan, 3).answered(CHUNK, 10.05)
    assert left(plan.running()) == list(range(3, 16))
    running = ticked(plan, 5).running()
    assert left(running) == list(range(8, 16))
    assert running is not None
    assert running.frozen == 3 + 1
    plan.asked(10.16)
    assert left(ticked(plan, 2).running()) == list(range(10, 16))  # the old one, until the new one is there
    ticked(plan, 1).answered(CHUNK + 100.0, 10.22)
    assert left(plan.running())[0] == 103.0


def test_longest_recent_delay_counts() -> None:
    """The longest of the last ten delays counts; no more actions are frozen than are left."""
    plan = RunningPlan(0.02)
    for i, delay_s in enumerate([0.01, 0.2, *[0.01] * 9]):
        plan.asked(float(i))
        plan.answered(CHUNK, i + delay_s)
    running = plan.running()
    assert running is not None
    assert running.frozen == 11
    running = ticked(plan, 12).running()
    assert running is not None
    assert (len(running.action), running.frozen) == (4, 4)
    plan.asked(50.0)
    plan.answered(CHUNK, 50.01)
    running = plan.running()
    assert running is not None
    assert running.frozen == 2


@pytest.mark.parametrize("how", ["played", "reset"])
def test_played_chunk_leaves_nothing(how: str) -> None:
    """The same after a reset; an answer from before the reset does not count."""
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
