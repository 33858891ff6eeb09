"""Race of two policies in pairs of episodes."""

from __future__ import annotations

import math

import pytest

from robo_rl.eval.race import Played, Race, race
from robo_rl.eval.stats import MeanReturn


@pytest.mark.parametrize(
    ("second_succeeds", "most", "pairs"),
    [(False, 10_000, 7), (True, 10_000, 20), (False, 100, 3), (False, 9, 0)],
)
def test_race_ends_when_it_is_clear_or_out_of_steps(second_succeeds: bool, most: int, pairs: int) -> None:
    """Seven pairs in one direction have p = 2 / 2^7 < 0.02. Equal policies use all seeds. Pairs cost 3 + 20
    steps here, and none is begun that might take 20 + 20 more than are left.
    """
    found = race(lambda _: Played(True, 3), lambda _: Played(second_succeeds, 20), range(20), most, 20)
    assert (len(found.first), found.env_steps) == (pairs, 23 * pairs)
    assert found.env_steps <= most
    assert found.lead == (0 if second_succeeds else pairs)
    assert (found.measures() is None) == (pairs == 0)


def test_lead_counts_both_directions() -> None:
    assert Race((True, True, False), (False, False, True), 0).lead == 1


def test_returns_race_where_no_success_is_reported() -> None:
    """Ten points more in every episode: seven pairs have p = 2 / 2^7, and the mean decides."""

    def play(seed: int, more: float = 0.0) -> Played:
        return Played(False, 5, more - 100.0 * seed, reported=False)

    found = race(lambda seed: play(seed, 10.0), play, range(20), 1000, 5)
    assert (len(found.first), found.env_steps, found.lead) == (7, 70, 70.0)
    assert race(lambda seed: play(seed, 10.0), play, range(4), 1000, 5).lead == 0.0  # p = 2 / 2^4
    first, second = found.measures() or (None, None)
    assert isinstance(first, MeanReturn)
    assert isinstance(second, MeanReturn)
    assert (first.value, second.value, first.n) == (-290.0, -300.0, 7)
    assert str(first) == "mean return -290 [-489.8, -90.21] in 7 episodes"  # t(6) = 2.447, sd 216.02 / 7^0.5


def test_success_races_where_only_success_is_reported() -> None:
    """A failure that is not reported scores 0 beside a success, and not its return."""
    found = race(lambda _: Played(True, 5, 1.0), lambda _: Played(False, 5, 300.0, False), range(20), 1000, 5)
    assert (len(found.first), found.lead, found.by_return) == (7, 7.0, False)


def test_a_return_that_is_no_number_decides_nothing() -> None:
    ours, theirs = Played(False, 5, math.nan, reported=False), Played(False, 5, 1.0, reported=False)
    found = race(lambda _: ours, lambda _: theirs, range(9), 90, 5)
    assert (found.lead, found.p_value) == (0.0, 1.0)
