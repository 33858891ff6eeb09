"""Race of two policies: episodes in pairs with the same seed, until their success differs clearly.

Only pairs in which one policy succeeds and the other fails carry evidence (McNemar). A race between clearly
different policies ends after few pairs, and its steps are not spent. Where the environment reports no
success, the returns race.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from robo_rl.eval.stats import Measure, measure_of, paired_return_test, paired_test

TIE = 0.1  # p from which on returns do not tell two policies apart: those of a few pairs always differ
CLEAR = 0.02  # p at which a race ends. Of McNemar's test: seven differing pairs, all in one direction


@dataclass(frozen=True, slots=True)
class Played:
    """One episode: its score is its success (1, 0), or its return where none is reported."""

    score: float
    env_steps: int
    by_return: bool = False


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
        return sum(self.first) - sum(self.second)

    @property
    def p_value(self) -> float:
        """Of a paired test; 1 without a pair."""
        if not self.first:
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
    now = Race((), (), 0)
    for seed in seeds:
        if now.env_steps + 2 * longest > most_steps or now.p_value < CLEAR:
            break
        one, other = first(seed), second(seed)
        steps = now.env_steps + one.env_steps + other.env_steps
        now = Race((*now.first, one.score), (*now.second, other.score), steps, one.by_return)
    return now
