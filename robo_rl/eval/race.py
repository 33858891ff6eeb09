"""Race of two policies: episodes in pairs with the same seed, until their success differs clearly.

Only pairs in which one policy succeeds and the other fails carry evidence (McNemar). A race between clearly
different policies ends after few pairs, and its steps are not spent. Where the environment reports no
success, the returns race.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from robo_rl.eval.stats import Measure, measure_of, paired_return_test, paired_test

TIE = 0.1  # p from which on returns do not tell two policies apart: those of a few pairs always differ
CLEAR = 0.02  # p at which a race ends. Of McNemar's test: seven differing pairs, all in one direction


@dataclass(frozen=True, slots=True)
class Played:
    """One episode. reported: False if the environment has said neither success nor failure."""

    success: bool
    env_steps: int
    total_return: float = 0.0
    reported: bool = True


Play = Callable[[int], Played]  # of an episode with this seed


@dataclass(frozen=True, slots=True)
class Race:
    """Scores in the order of the seeds, one of each policy per pair."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    env_steps: int
    by_return: bool = False

    @property
    def lead(self) -> float:
        """Episodes that only the first policy solved, less those that only the second one solved; of
        returns, the difference of their sums, 0 where it may be chance.
        """
        if self.by_return and self.p_value >= TIE:
            return 0.0
        lead = sum(self.first) - sum(self.second)
        return lead if math.isfinite(lead) else 0.0

    @property
    def p_value(self) -> float:
        """p of a paired test; 1 without a pair, and where a return is no number."""
        if not all(map(math.isfinite, self.first + self.second)) or not self.first:
            return 1.0
        if self.by_return:
            return paired_return_test(self.first, self.second).p_value
        first, second = ([score > 0.0 for score in scores] for scores in (self.first, self.second))
        return paired_test(first, second).p_value

    def measures(self) -> tuple[Measure, Measure] | None:
        """Success of both policies, or their mean returns; None without a pair."""
        if not self.first:
            return None
        first, second = (measure_of(each, by_return=self.by_return) for each in (self.first, self.second))
        return first, second


def race(first: Play, second: Play, seeds: Sequence[int], most_steps: int, longest: int) -> Race:
    """Run pairs on `seeds` until the test is clear, or another pair might exceed `most_steps`.

    longest: steps of the longest episode. The repeated test is more often significant by chance than a single
    one: it chooses a policy, it does not measure one.
    """
    ones: list[Played] = []
    others: list[Played] = []
    now = Race((), (), 0)
    for seed in seeds:
        if now.env_steps + 2 * longest > most_steps or now.p_value < CLEAR:
            break
        ones.append(first(seed))
        others.append(second(seed))
        now = _race_of(ones, others)
    return now


def scores_of(played: Sequence[Played], *, by_return: bool) -> list[float]:
    """What episodes are compared by: success (1, 0), or their returns."""
    return [each.total_return if by_return else float(each.success) for each in played]


def unreported(played: Sequence[Played]) -> bool:
    """True if the environment has reported success or failure in none of these episodes: returns count."""
    return not any(each.reported for each in played)


def _race_of(ones: Sequence[Played], others: Sequence[Played]) -> Race:
    by_return = unreported([*ones, *others])
    first, second = (tuple(scores_of(each, by_return=by_return)) for each in (ones, others))
    return Race(first, second, sum(each.env_steps for each in (*ones, *others)), by_return)
