"""Estimate of the time that a training takes."""

from __future__ import annotations

import pytest

from robo_rl.runs.estimate import TimeEstimate


@pytest.mark.parametrize(
    ("each_s", "sentences"),
    [
        (1.2, ["This will take about 60 min: 2994 updates of 1.2 s."]),
        (9.0, ["This will take about 7.5 h: 2998 updates of 9 s."]),
        (0.05, []),  # 150 s: short
    ],
)
def test_a_long_training_is_announced_once(each_s: float, sentences: list[str]) -> None:
    """After 5 s, without the first step, which took a minute here."""
    times = iter([60.0 + each_s * i for i in range(3000)])
    estimate = TimeEstimate(3000, "update", lambda: next(times))
    said = [(step, text) for step in range(1, 3001) if (text := estimate.sentence(step))]
    assert [text for _, text in said] == sentences
    assert all((step - 1) * each_s >= 5.0 for step, _ in said)


def test_a_resumed_training_counts_the_rest() -> None:
    """From update 2000 of 3000: the steps before are not part of its time."""
    times = iter([0.0, 6.0])
    estimate = TimeEstimate(3000, "update", lambda: next(times))
    assert estimate.sentence(2001) == ""
    assert estimate.sentence(2002) == "This will take about 1.7 h: 998 updates of 6 s."
