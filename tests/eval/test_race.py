"""Race of two policies in pairs of episodes."""

from __future__ import annotations

import pytest

from robo_rl.eval.race import Race, race


@pytest.mark.parametrize(
    ("second_succeeds", "most", "pairs"),
    [(False, 10_000, 7), (True, 10_000, 20), (False, 100, 3), (False, 9, 0)],
)
def test_race_ends_when_it_is_clear_or_out_of_steps(second_succeeds: bool, most: int, pairs: int) -> None:
    """Seven pairs in one direction have p = 2 / 2^7 < 0.02. Equal policies use all seeds. Pairs cost 3 + 20
    steps here, and none is begun that might take 20 + 20 more than are left.
    """
    found = race(lambda _: (True, 3), lambda _: (second_succeeds, 20), range(20), most, 20)
    assert (len(found.first), found.env_steps) == (pairs, 23 * pairs)
    assert found.env_steps <= most
    assert found.lead == (0 if second_succeeds else pairs)
    assert (found.rates() is None) == (pairs == 0)


def test_lead_counts_both_directions() -> None:
    assert Race((True, True, False), (False, False, True), 0).lead == 1
