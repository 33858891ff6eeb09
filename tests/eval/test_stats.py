"""Numbers computed by hand, so that changes of libraries or arguments are detected."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from robo_rl.core.errors import ConfigError
from robo_rl.eval.stats import (
    MeanReturn,
    SuccessRate,
    alike,
    chance_of_less,
    design_effect,
    interquartile_mean,
    mean_over_seeds,
    measure_of,
    paired_return_test,
    paired_test,
    pooled,
    rate_over_seeds,
)


def test_wilson_equals_the_formula() -> None:
    """(p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) for 57 of 100, z = 1.959964."""
    z, p, n = 1.959963984540054, 0.57, 100
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    centre, scale = p + z * z / (2 * n), 1 + z * z / n
    assert SuccessRate(57, 100).wilson() == pytest.approx(
        ((centre - half) / scale, (centre + half) / scale), abs=1e-9
    )


@pytest.mark.parametrize(
    ("k", "n", "text"),
    [
        (57, 100, "57/100 = 57 % [47, 66]"),
        (100, 100, "100/100 = 100 % [96, 100]"),
        (0, 20, "0/20 = 0 % [0, 16]"),
        (
            499,
            500,
            "499/500 = 99.8 % [98.9, 100.0]",
        ),  # more than 100 episodes: tenths, or 499 of 500 would read 100 %
    ],
)
def test_rates_print_k_n_and_interval(k: int, n: int, text: str) -> None:
    """Every success rate is printed with k, n and its interval."""
    assert str(SuccessRate(k, n)) == text


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_rate_and_stays_in_the_unit_interval(kn: tuple[int, int]) -> None:
    """An interval below 0, above 1, or without its own estimate would be wrong."""
    low, high = SuccessRate(*kn).wilson()
    assert 0.0 <= low <= kn[0] / kn[1] + 1e-12
    assert kn[0] / kn[1] - 1e-12 <= high <= 1.0


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_intervals_of_success_are_scipys(kn: tuple[int, int]) -> None:
    """They are computed without SciPy, whose import is slow."""
    k, n = kn
    expected = stats.binomtest(k, n).proportion_ci(method="wilson")
    assert SuccessRate(k, n).wilson() == pytest.approx(tuple(expected), abs=1e-12)


def test_success_rates_load_no_scipy() -> None:
    """Its import takes a quarter of the time in which `evaluate` and `finetune` refuse a wrong setting."""
    code = (
        "import sys; from robo_rl.eval.stats import SuccessRate; "
        "print(SuccessRate(57, 100), 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("] ")[1] == "False\n"


@pytest.mark.parametrize(("k", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(k: int, n: int) -> None:
    """A rate without episodes, or with more successes than episodes, is an error of the caller."""
    with pytest.raises(ConfigError, match="0 <= k <= n"):
        SuccessRate(k, n)


def test_fully_correlated_drones_count_as_one_sample() -> None:
    """100 worlds of 8 drones, 20 lost with all drones: 80/100 worlds were measured, not 640/800 drones."""
    together = np.repeat([[False]] * 20 + [[True]] * 80, 8, axis=1)
    rate = SuccessRate.of_groups(together)
    assert (rate.k, rate.n) == (640, 800)
    assert rate.effective_n == pytest.approx(100.0)  # the effect is 8 x 100/99, held to 8
    assert rate.wilson() == pytest.approx(SuccessRate(80, 100).wilson())
    assert rate.to_json()["effective_n"] == 100.0


def test_the_design_effect_by_hand() -> None:
    """Means 1, 1/2, 1/2, 0 of pairs: their variance 1/6, over four 1/24; independent 1/2 * 1/2 / 8 = 1/32; so
    4/3.
    """
    pairs = np.array([[True, True], [True, False], [False, True], [False, False]])
    assert design_effect(pairs) == pytest.approx(4.0 / 3.0)
    assert design_effect(np.array([[True, False]] * 4)) == 1.0  # more even than chance: still no gain
    assert design_effect(np.ones((5, 8), dtype=bool)) == 8.0  # nothing tells


def test_intervals_of_correlated_drones_have_nominal_coverage() -> None:
    """200 samples of 60 worlds of 6 correlated drones: 95 % of the intervals should contain the true rate,
    0.8. Counted as 360 independent drones, about 70 % do.
    """
    rng, hits, naive = np.random.default_rng(0), 0, 0
    for _ in range(200):
        share = rng.beta(0.8, 0.2, (60, 1))
        rate = SuccessRate.of_groups(rng.random((60, 6)) < share)
        low, high = rate.wilson()
        hits += low <= 0.8 <= high
        low, high = SuccessRate(rate.k, rate.n).wilson()
        naive += low <= 0.8 <= high
    assert 0.91 <= hits / 200 <= 0.99
    assert naive / 200 < 0.75


def test_mcnemar_by_hand() -> None:
    """8 discordant seeds, split 1 : 7: p = 2 (C(8,0) + C(8,1)) / 2^8 = 18/256."""
    first = [True] * 5 + [False] * 3 + [True] + [False] * 7
    second = [True] * 5 + [False] * 3 + [False] + [True] * 7
    test = paired_test(first, second)
    assert (test.both, test.neither, test.only_first, test.only_second) == (5, 3, 1, 7)
    assert test.p_value == pytest.approx(18 / 256)


def test_a_policy_equals_itself() -> None:
    """Without discordant seeds p = 1, not a division by zero."""
    assert paired_test([True, False], [True, False]).p_value == 1.0


def test_pairing_needs_equally_many_seeds() -> None:
    """Truncating to the shorter list would pair the wrong seeds."""
    with pytest.raises(ConfigError, match="same seeds"):
        paired_test([True], [True, False])


def test_interquartile_mean_by_hand() -> None:
    """The middle half of 1..8 is 3, 4, 5, 6: mean 4.5; an outlier of 1000 instead of 8 changes nothing."""
    scores = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 1000.0]])
    estimate = interquartile_mean(scores)
    assert estimate.value == 4.5
    assert estimate.low <= 4.5 <= estimate.high


def test_bootstrap_resamples_within_a_task() -> None:
    """Two tasks whose seeds agree have nothing to resample: pooled resampling would mix 0 and 1."""
    estimate = interquartile_mean(np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    assert (estimate.low, estimate.value, estimate.high) == (0.5, 0.5, 0.5)


def test_mean_over_seeds_by_hand() -> None:
    """Returns 1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.302653: 2 +- 4.302653 / sqrt(3)."""
    estimate = mean_over_seeds([1.0, 2.0, 3.0])
    half = 4.302652729911275 / math.sqrt(3)
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx((2.0 - half, 2.0, 2.0 + half))


def test_rate_over_seeds_by_hand() -> None:
    """2, 3 and 4 of 10: 0.3 +- 4.302653 * 0.1 / sqrt(3), which contains Wilson's interval of 9 of 30; clipped
    where it would leave [0, 1].
    """
    estimate = rate_over_seeds([SuccessRate(k, 10) for k in (2, 3, 4)])
    half = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx((0.3 - half, 0.3, 0.3 + half))
    estimate = rate_over_seeds([SuccessRate(0, 10), SuccessRate(10, 10)])
    assert (estimate.low, estimate.value, estimate.high) == (0.0, 0.5, 1.0)


def test_seeds_that_agree_have_the_interval_of_all_their_episodes() -> None:
    """Three seeds with 20 of 20 show no variance between seeds, but not that each policy always succeeds."""
    estimate = rate_over_seeds([SuccessRate(20, 20)] * 3)
    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert estimate.low == pytest.approx(SuccessRate(60, 60).wilson()[0])


@pytest.mark.parametrize("runs", [3, 5, 10])
@pytest.mark.parametrize(("mean", "std", "episodes"), [(0.7, 0.1, 100), (0.97, 0.03, 20)])
def test_intervals_over_seeds_have_nominal_coverage(
    runs: int, mean: float, std: float, episodes: int
) -> None:
    """1000 experiments with beta-distributed success of the trained policies: 95 % of the intervals should
    contain the mean. A percentile bootstrap of the first kind does in 73 % with three runs, 81 % with five.
    """
    rng, hits, size = np.random.default_rng(0), 0, mean * (1.0 - mean) / std**2 - 1.0
    for _ in range(1000):
        policies = rng.beta(mean * size, (1.0 - mean) * size, runs)
        counts = rng.binomial(episodes, policies)
        found = rate_over_seeds([SuccessRate(int(k), episodes) for k in counts])
        hits += found.low <= mean <= found.high
    assert hits / 1000 >= 0.93


def test_one_seed_has_no_interval_over_seeds() -> None:
    """A single run does not show the variance of runs."""
    with pytest.raises(ConfigError, match="at least 2 seeds"):
        mean_over_seeds([0.9])
    with pytest.raises(ConfigError, match="at least 2 seeds"):
        rate_over_seeds([SuccessRate(9, 10)])


def test_returns_are_compared_seed_by_seed() -> None:
    """By hand: of the 2^6 signs of six differences of one sign, two give as large a mean; with one of the
    smallest turned, these two and the two with it turned back. Large common returns change nothing.
    """
    base = [-1400.0, -90.0, -1200.0, -300.0, -800.0, -5.0]
    gain = [2.0, 3.0, 5.0, 8.0, 13.0, 21.0]
    test = paired_return_test([a + b for a, b in zip(base, gain, strict=True)], base)
    assert test.mean_difference == pytest.approx(52 / 6)
    assert test.p_value == pytest.approx(2 / 64)
    less = [-2.0, *gain[1:]]
    test = paired_return_test([a + b for a, b in zip(base, less, strict=True)], base)
    assert test.p_value == pytest.approx(4 / 64)
    assert paired_return_test(base, base).p_value == 1.0
    assert paired_return_test([1.0], [0.0]).p_value == 1.0
    with pytest.raises(ConfigError, match="found 6 and 5 returns"):
        paired_return_test(base, base[:-1])


def test_many_seeds_are_compared_by_random_flips() -> None:
    """A clear gain and none; the same numbers each time."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.0, 1.0, (2, 40))
    p = paired_return_test(first.tolist(), second.tolist()).p_value
    assert p > 0.05
    assert p == paired_return_test(first.tolist(), second.tolist()).p_value
    assert paired_return_test((first + 2.0).tolist(), second.tolist()).p_value < 0.001


def test_measures_of_more_episodes_add_up() -> None:
    """Pooling two parts gives the measure of all their episodes."""
    for scores, by_return in (([1.0, 0.0, 1.0, 1.0], False), ([3.0, -1.0, 4.5, 2.0], True)):
        parts = [measure_of(each, by_return=by_return) for each in (scores[:1], scores[1:])]
        whole, found = measure_of(scores, by_return=by_return), pooled(*parts)
        assert found is not None
        assert (type(found), found.n) == (type(whole), 4)
        assert found.value == pytest.approx(whole.value)
        if isinstance(whole, MeanReturn):
            assert isinstance(found, MeanReturn)
            assert found.sd == pytest.approx(whole.sd)
    assert pooled(None, SuccessRate(1, 2)) == SuccessRate(1, 2)


def test_lower_returns_by_chance() -> None:
    """Means 2 and 3.9, variances of the means 0.1667 and 0.11: t = -1.9 / 0.526 = -3.61 with 6.2 degrees of
    freedom. A single episode says nothing.
    """
    low, high = MeanReturn.of([1.0, 2.0, 3.0, 2.0]), MeanReturn.of([4.0, 3.0, 5.0, 4.0, 3.5])
    assert chance_of_less(low, high) == pytest.approx(0.00525, abs=1e-5)
    assert chance_of_less(high, low) == pytest.approx(1.0 - 0.00525, abs=1e-5)
    assert chance_of_less(MeanReturn.of([0.0]), high) == 1.0
    still, higher = MeanReturn.of([0.0, 0.0]), MeanReturn.of([1.0, 1.0])
    assert (chance_of_less(still, higher), chance_of_less(higher, still)) == (0.0, 1.0)
    assert chance_of_less(MeanReturn(0.0, 50), high) == 1.0  # its spread is unknown
    assert MeanReturn.of([math.nan, 1.0]).to_json() == {"mean_return": None, "n": 2, "sd": None}


def test_returns_beside_a_success_rate_are_failures() -> None:
    """An environment that names successes alone: its episodes without any are measured by their returns."""
    none, some = MeanReturn.of([300.0, 290.0, 310.0]), SuccessRate(2, 4)
    assert pooled(none, some) == SuccessRate(2, 7)
    assert chance_of_less(none, some) == chance_of_less(SuccessRate(0, 3), some)
    assert alike(some, none) == (some, SuccessRate(0, 3))
