"""Race of two policies: episodes in pairs with the same seed, until their success differs clearly.

Only pairs in which one policy succeeds and the other fails carry evidence (McNemar). A race between clearly
different policies ends after few pairs, and its steps are not spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from robo_rl.eval.stats import SuccessRate, paired_test

Play = Callable[[int], tuple[bool, int]]  # episode seed -> (success, environment steps)
CLEAR = 0.02  # p of the exact McNemar test at which a race ends: seven differing pairs, all in one direction


@dataclass(frozen=True, slots=True)
class Race:
    """Outcomes in the order of the seeds, one of each policy per pair."""

    first: tuple[bool, ...]
    second: tuple[bool, ...]
    env_steps: int

    @property
    def lead(self) -> int:
        """Episodes that only the first policy solved, less those that only the second one solved."""
        return sum(self.first) - sum(self.second)

    def rates(self) -> tuple[SuccessRate, SuccessRate] | None:
        """Success of both policies; None without a pair."""
        return (SuccessRate.of(self.first), SuccessRate.of(self.second)) if self.first else None


def race(first: Play, second: Play, seeds: Sequence[int], most_steps: int, longest: int) -> Race:
    """Run pairs on `seeds` until the test is clear, or another pair might exceed `most_steps`.

    longest: steps of the longest episode. The repeated test is more often significant by chance than a single
    one: it chooses a policy, it does not measure one.
    """
    ones: list[bool] = []
    others: list[bool] = []
    steps = 0
    for seed in seeds:
        if steps + 2 * longest > most_steps or (ones and paired_test(ones, others).p_value < CLEAR):
            break
        for play, outcomes in ((first, ones), (second, others)):
            success, took = play(seed)
            outcomes.append(success)
            steps += took
    return Race(tuple(ones), tuple(others), steps)
