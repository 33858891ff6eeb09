"""Percentiles without storing the durations: within the stated error of NumPy's, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.core.text.durations import RELATIVE_ERROR, SHORTEST_S, Durations


def filled(seconds: np.ndarray) -> Durations:
    made = Durations()
    for value in seconds.tolist():
        made.add(value)
    return made


@pytest.mark.parametrize("size", [1, 2, 10, 101, 5000])
@pytest.mark.parametrize("q", [0, 50, 99, 100])
def test_percentiles_are_numpys_within_half_a_per_cent(size: int, q: int) -> None:
    """From a microsecond to ten seconds, for few and many values, with NumPy's interpolation between
    ranks.
    """
    seconds = 10.0 ** np.random.default_rng(size).uniform(-6.0, 1.0, size)
    assert filled(seconds).percentile_s(q) == pytest.approx(
        np.percentile(seconds, q), rel=1.001 * RELATIVE_ERROR
    )


def test_the_ends_are_exact() -> None:
    """The longest tick and constants are exact; without durations the result is 0."""
    many = filled(np.random.default_rng(0).exponential(1e-3, 1000))
    assert many.percentile_s(100) == pytest.approx(many.longest_s, rel=RELATIVE_ERROR)
    assert filled(np.full(7, 0.03)).percentile_s(50) == 0.03
    assert filled(np.zeros(3)).percentile_s(99) == 0.0
    assert Durations().percentile_s(99) == 0.0
    mixed = filled(np.array([0.0, 0.0, 1.0]))
    assert (mixed.shortest_s, mixed.longest_s, mixed.count) == (0.0, 1.0, 3)
    assert mixed.percentile_s(50) == pytest.approx(0.0, abs=1.01 * SHORTEST_S)


def test_memory_does_not_grow_with_time() -> None:
    """Twice as many ticks of the same kind fill the same bins, of which there are few."""
    rng = np.random.default_rng(0)
    made = filled(10.0 ** rng.uniform(-9.0, 9.0, 50_000))
    bins = len(made._bins)
    for value in (10.0 ** rng.uniform(-9.0, 9.0, 50_000)).tolist():
        made.add(value)
    assert made.count == 100_000
    assert bins <= len(made._bins) < 3100
