"""Success statistics: intervals of success rates and paired tests on shared seeds.

Tests and intervals of returns are SciPy's, whose statistics are imported by the functions that need them: the
import takes longer than most verbs need to refuse a wrong setting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import json_number
from robo_rl.core.shapes import Bool, Float
from robo_rl.core.text.counts import counted

CONFIDENCE = 0.95
SIGNIFICANT = 0.05  # p below which a difference is taken as real
_DECIMALS_FROM = 100  # above this n one per cent is more than one episode, so print tenths


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """k successes in n episodes. Prints k, n, per cent and the 95 % Wilson interval: "57/100 = 57 % [47,
    66]".

    effective_n: number of independent episodes with the same information, if these are correlated; None: n.
    """

    k: int
    n: int
    effective_n: float | None = None

    def __post_init__(self) -> None:
        if self.n < 1 or not 0 <= self.k <= self.n:
            raise ConfigError(f"A success rate needs n >= 1 and 0 <= k <= n, found k={self.k}, n={self.n}.")

    @classmethod
    def of(cls, outcomes: Sequence[bool]) -> SuccessRate:
        return cls(sum(map(bool, outcomes)), len(outcomes))

    @classmethod
    def of_groups(cls, outcomes: Bool[ndarray, "groups members"]) -> SuccessRate:
        """Rate of outcomes that are correlated within groups, as drones of one world: effective n = n /
        design effect.
        """
        effect = design_effect(outcomes)
        return cls(int(outcomes.sum()), outcomes.size, outcomes.size / effect)

    @property
    def rate(self) -> float:
        return self.k / self.n

    @property
    def value(self) -> float:
        """The rate; the name that other measures have."""
        return self.rate

    def wilson(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Score interval (Wilson 1927), whose coverage holds near 0 and 1, where that of k +- 1.96 se does
        not.
        """
        return _score_interval(
            self.rate, self.n if self.effective_n is None else self.effective_n, confidence
        )

    def to_json(self) -> dict[str, Any]:
        worth = {} if self.effective_n is None else {"effective_n": round(self.effective_n, 1)}
        return {"k": self.k, "n": self.n, "success": self.rate, "wilson95": list(self.wilson()), **worth}

    def __str__(self) -> str:
        digits = 0 if self.n <= _DECIMALS_FROM else 1
        rate, low, high = (f"{100 * share:.{digits}f}" for share in (self.rate, *self.wilson()))
        return f"{self.k}/{self.n} = {rate} % [{low}, {high}]"


def design_effect(outcomes: Bool[ndarray, "groups members"]) -> float:
    """Variance of the mean over groups, relative to that of independent outcomes (Kish 1965).

    1 for independent members, the group size for fully correlated ones, and never below 1, since negative
    correlation is attributed to chance. If all outcomes agree, or there is one group, the group size, so that
    a group counts once.
    """
    groups, members = outcomes.shape
    rate = float(outcomes.mean())
    if groups < 2 or rate in (0.0, 1.0):
        return float(members)
    of_groups = float(outcomes.mean(axis=1).var(ddof=1)) / groups
    effect = of_groups / (rate * (1.0 - rate) / outcomes.size)
    return float(min(max(effect, 1.0), members))


def _score_interval(rate: float, n: float, confidence: float) -> tuple[float, float]:
    """Wilson's interval of a rate, for any real n."""
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    half = z * math.sqrt(rate * (1.0 - rate) / n + z * z / (4.0 * n * n))
    centre, scale = rate + z * z / (2.0 * n), 1.0 + z * z / n
    low = (centre - half) / scale if rate > 0.0 else 0.0  # exactly, without rounding
    high = (centre + half) / scale if rate < 1.0 else 1.0
    return max(0.0, low), min(1.0, high)


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Comparison of two policies on the same seeds. Only seeds on which they differ carry evidence."""

    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float  # exact McNemar, two-sided


def paired_test(first: Sequence[bool], second: Sequence[bool]) -> PairedTest:
    """Exact McNemar test: for equally good policies, discordant seeds are fair coin flips.

    Raises ConfigError if the numbers of seeds differ.
    """
    from scipy import stats

    if len(first) != len(second):
        raise ConfigError(
            f"A paired test needs the same seeds for both policies, found {len(first)} and {len(second)} "
            "outcomes. Evaluate both with the same evaluation seed and number of episodes."
        )
    pairs = [(bool(a), bool(b)) for a, b in zip(first, second, strict=True)]
    only_first, only_second = pairs.count((True, False)), pairs.count((False, True))
    discordant = only_first + only_second
    p_value = float(stats.binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0
    return PairedTest(
        pairs.count((True, True)), only_first, only_second, pairs.count((False, False)), p_value
    )


@dataclass(frozen=True, slots=True)
class ReturnTest:
    """Comparison of two policies by their returns on the same seeds, where no success is reported."""

    mean_difference: float  # of the first policy's return to the second's
    p_value: float  # paired permutation test, two-sided


def paired_return_test(first: Sequence[float], second: Sequence[float], rng: int = 0) -> ReturnTest:
    """Permutation test of the mean difference (Fisher 1935, "The Design of Experiments", section 21): for
    equally good policies, the sign of each seed's difference is a fair coin flip.

    Exact up to 13 seeds; from 9,999 random flips above. Fewer than six seeds cannot reach p < 0.05. With a
    return that is not finite, the difference is NaN and p = 1.
    Raises ConfigError if the numbers of seeds differ.
    """
    from scipy import stats

    if len(first) != len(second):
        raise ConfigError(
            f"A paired test needs the same seeds for both policies, found {len(first)} and {len(second)} "
            "returns. Evaluate both with the same evaluation seed and number of episodes."
        )
    if not all(map(math.isfinite, (*first, *second))):
        return ReturnTest(math.nan, 1.0)
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if len(difference) < 2 or not difference.any():  # one flip or none says nothing
        return ReturnTest(float(difference.mean()), 1.0)
    found = stats.permutation_test(
        (difference,), np.mean, permutation_type="samples", vectorized=True, batch=1000,
        n_resamples=9999, rng=np.random.default_rng(rng),
    )  # fmt: skip
    return ReturnTest(float(difference.mean()), float(found.pvalue))


@dataclass(frozen=True, slots=True)
class MeanReturn:
    """Mean return of n episodes, where the environment reports no success. sd: their standard deviation;
    None: unknown.
    """

    value: float
    n: int
    sd: float | None = None

    @classmethod
    def of(cls, returns: Sequence[float]) -> MeanReturn:
        """Measure of at least one episode."""
        known = len(returns) > 1 and all(map(math.isfinite, returns))
        sd = float(np.std(returns, ddof=1)) if known else None
        return cls(float(np.mean(returns)), len(returns), sd)

    def to_json(self) -> dict[str, Any]:
        """The fields; None for a number that is not finite, which JSON has not."""
        return {"mean_return": json_number(self.value), "n": self.n, "sd": json_number(self.sd)}

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
        """Student's interval of the mean; None where the spread is unknown."""
        if self.sd is None or self.n < 2:
            return None
        from scipy import stats

        half = float(stats.t.ppf(0.5 + 0.5 * confidence, self.n - 1)) * self.sd / math.sqrt(self.n)
        return self.value - half, self.value + half

    def __str__(self) -> str:
        """Such as "mean return 26.7 [20.4, 33] in 50 episodes", with the 95 % interval."""
        found = self.interval()
        spread = "" if found is None else f" [{found[0]:.4g}, {found[1]:.4g}]"
        return f"mean return {self.value:.4g}{spread} in {counted(self.n, 'episode')}"


Measure = SuccessRate | MeanReturn  # what is known of a policy from its episodes


def measure_of(scores: Sequence[float], *, by_return: bool) -> Measure:
    """Measure of episodes by their scores: success (1, 0), or their returns."""
    return MeanReturn.of(scores) if by_return else SuccessRate.of([score > 0.0 for score in scores])


def alike(first: Measure, second: Measure) -> tuple[Measure, Measure]:
    """Both as success rates if one is: returns are measured only where no success was reported, so none of
    those episodes was one.
    """
    if type(first) is type(second):
        return first, second
    one, other = (
        each if isinstance(each, SuccessRate) else SuccessRate(0, each.n) for each in (first, second)
    )
    return one, other


def pooled(first: Measure | None, second: Measure | None) -> Measure | None:
    """Measure of the episodes of both."""
    if first is None or second is None:
        return first or second
    first, second = alike(first, second)
    if isinstance(first, SuccessRate) and isinstance(second, SuccessRate):
        return SuccessRate(first.k + second.k, first.n + second.n)
    assert isinstance(first, MeanReturn)
    assert isinstance(second, MeanReturn)
    n = first.n + second.n
    mean = (first.n * first.value + second.n * second.value) / n
    if any(each.sd is None and each.n > 1 for each in (first, second)):
        return MeanReturn(mean, n)
    within = sum((each.n - 1) * (each.sd or 0.0) ** 2 for each in (first, second))
    between = sum(each.n * (each.value - mean) ** 2 for each in (first, second))
    return MeanReturn(mean, n, math.sqrt((within + between) / (n - 1)))


def chance_of_less(first: Measure, second: Measure) -> float:
    """One-sided p: how often equally good policies show so few successes, or so low returns, of the first.

    For episodes that are not paired: Fisher's exact test of successes, Welch's t-test of returns (1947, "The
    generalization of Student's problem"). 1 where the spread of a mean is unknown.
    """
    from scipy import stats

    first, second = alike(first, second)
    if isinstance(first, SuccessRate) and isinstance(second, SuccessRate):
        table = [[rate.k, rate.n - rate.k] for rate in (first, second)]
        return float(stats.fisher_exact(table, alternative="less").pvalue)
    assert isinstance(first, MeanReturn)
    assert isinstance(second, MeanReturn)
    if first.sd is None or second.sd is None:
        return 1.0
    if first.sd == second.sd == 0.0:
        return float(first.value >= second.value)
    found = stats.ttest_ind_from_stats(
        first.value, first.sd, first.n, second.value, second.sd, second.n,
        equal_var=False, alternative="less",
    )  # fmt: skip
    return float(found.pvalue)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic with its interval."""

    value: float
    low: float
    high: float


def mean_over_seeds(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Mean over n training seeds, +- t(n - 1) s / sqrt(n): Student's interval (1908, "The Probable Error of a
    Mean").

    s is the standard deviation over seeds: episodes of one run do not show how runs differ. A bootstrap of
    few seeds is too narrow: with three it never leaves their range, and its 95 % interval covers 73 %.
    """
    from scipy import stats

    _check_seeds(len(values))
    mean, n = float(np.mean(values)), len(values)
    half = float(stats.t.ppf(0.5 + 0.5 * confidence, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return Estimate(mean, mean - half, mean + half)


def rate_over_seeds(rates: Sequence[SuccessRate], confidence: float = CONFIDENCE) -> Estimate:
    """Mean success over training seeds with the interval of `mean_over_seeds`, clipped to [0, 1].

    It is at least as wide as Wilson's interval of all episodes together: near 0 and 1, seeds often agree by
    chance, and their standard deviation is then too small.
    """
    found = mean_over_seeds([rate.rate for rate in rates], confidence)
    together = SuccessRate(sum(rate.k for rate in rates), sum(rate.n for rate in rates))
    low, high = together.wilson(confidence)
    return Estimate(found.value, max(0.0, min(found.low, low)), min(1.0, max(found.high, high)))


def interquartile_mean(
    scores: Float[ndarray, "tasks seeds"], confidence: float = CONFIDENCE, rng: int = 0
) -> Estimate:
    """Mean of the middle half of all runs, with an interval stratified by task.

    Source: Agarwal et al. 2021, "Deep RL at the Edge of the Statistical Precipice". It depends less on a
    single lucky or failed seed than the mean, and is far less noisy than the median at 3 to 10 seeds. With
    one task, the 95 % interval is too narrow: it covers 73 % with 3 seeds, and 90 % with 5.
    """
    return _bootstrap(list(np.atleast_2d(scores)), 0.25, confidence, rng)


def _check_seeds(count: int) -> None:
    if count < 2:
        raise ConfigError(
            "An interval over seeds needs at least 2 seeds. Train with more seeds, or report Wilson."
        )


def _bootstrap(strata: list[Float[ndarray, " seeds"]], trim: float, confidence: float, rng: int) -> Estimate:
    """Percentile bootstrap of a trimmed mean over the pooled strata, each resampled within itself."""
    from scipy import stats

    def statistic(*samples: ndarray, axis: int = -1) -> ndarray:
        return np.asarray(stats.trim_mean(np.concatenate(samples, axis=axis), trim, axis=axis))

    _check_seeds(min(len(row) for row in strata))
    # Percentile, not BCa: BCa is undefined if all seeds agree, which is the best case here.
    result = stats.bootstrap(
        tuple(strata), statistic, vectorized=True, confidence_level=confidence, method="percentile",
        rng=np.random.default_rng(rng),
    )  # fmt: skip
    interval = result.confidence_interval
    return Estimate(float(statistic(*strata)), float(interval.low), float(interval.high))
