"""Training episodes as evidence for the choice between a policy and its base."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest

from robo_rl.apps.tuning.comparison import TrainingEpisodes
from robo_rl.eval.stats import MeanReturn, SuccessRate
from robo_rl.rl.running import CollectedEpisode

PHASE, LIMIT, SHORT = 150, 100, 50  # steps of the base's phase, of a failure and of a success


def of_base(lanes: Iterable[tuple[bool, ...]]) -> TrainingEpisodes:
    """Episodes of the base in lanes with these outcomes in order, as far as they end in its phase."""
    found = TrainingEpisodes()
    for outcomes in lanes:
        now = 0
        for success in outcomes:
            steps = SHORT if success else LIMIT
            now += steps
            if now <= PHASE:
                found.add([CollectedEpisode(0, success, steps, float(success))], "base", PHASE - now, LIMIT)
    return found


def test_short_successes_do_not_favour_the_base() -> None:
    """A base that succeeds every other time, each order of three outcomes once: 9 of the 15 episodes that end
    in its phase, 6 of the 12 early ones.
    """
    found = of_base(product((True, False), repeat=3))
    early, late = found.base, found.late
    assert (sum(early + late), len(early + late)) == (9, 15)
    assert (sum(early), len(early)) == (6, 12)
    assert found.measures()["base"].value == 0.5


def test_few_early_episodes_are_not_enough_to_judge_the_base() -> None:
    """Seven early failures and three late successes: 3 of 10. From eight on the late ones are left out."""
    found = TrainingEpisodes([False] * 7, [True] * 3)
    assert found.measures()["base"] == SuccessRate(3, 10)
    found.base.append(False)
    assert found.measures()["base"] == SuccessRate(0, 8)


def test_a_policy_is_good_enough_by_a_hundred_episodes() -> None:
    """97 of 100, not 96, and not 99 of 99."""
    found = TrainingEpisodes()
    found.recent.extend([True] * 99)
    assert not found.good_enough()
    found.recent.extend([True] * 97 + [False] * 3)
    assert found.good_enough()
    found.recent.append(False)
    assert not found.good_enough()


def test_training_episodes_that_outdo_an_imitation() -> None:
    """95 of 100 against 7 of 10 have p = 0.024, against 9 of 10 p = 0.44; unknown ones outdo nothing."""
    found = TrainingEpisodes()
    assert not found.outdo(SuccessRate(0, 10))
    found.recent.extend([True] * 95 + [False] * 5)
    assert found.outdo(SuccessRate(7, 10))
    assert not found.outdo(SuccessRate(9, 10))


def test_a_base_is_perfect_by_its_early_episodes() -> None:
    """Three successes in one lane; the third began too late to fail within the phase."""
    found = of_base([(True, True, True)])
    assert (found.base, found.late) == ([True, True], [True])
    assert found.perfect_base(2)
    assert not found.perfect_base(3)
    assert not found.perfect_base(0)
    found.late.append(False)
    assert not found.perfect_base(2)


@pytest.mark.parametrize(("successes", "wins"), [(80, True), (60, False)])
def test_a_tie_goes_to_the_policy_unless_it_is_clearly_worse(successes: int, wins: bool) -> None:
    """Beside 28 of 32 of the base, 80 of 100 exploring episodes may be chance (p = 0.25), not 60 of 100."""
    found = TrainingEpisodes([True] * 28 + [False] * 4)
    assert not found.wins_ties()  # nothing is known of the policy
    found.recent.extend([True] * successes + [False] * (100 - successes))
    assert found.wins_ties() is wins
    assert not found.favour_policy()


def test_returns_decide_where_no_success_is_reported() -> None:
    """A failed report of success is no failure: 20 returns around 5 outdo 20 around 1."""
    found = TrainingEpisodes()
    for phase, mean in (("base", 1.0), ("online", 5.0)):
        ended = [CollectedEpisode(i, False, 9, mean + 0.1 * i, reported=False) for i in range(20)]
        found.add(ended, phase)
    assert found.favour_policy()
    assert found.wins_ties()
    assert found.outdo(MeanReturn.of([1.0, 1.1, 1.2]))
    assert not found.good_enough()  # no return is the highest
    assert not found.perfect_base(1)
    (said,) = found.sentences()
    assert "base mean return 1.95 [" in said
    assert "last ones of the policy mean return 5.95 [" in said
    again = TrainingEpisodes.from_state(found.state_dict())
    assert again.measures() == found.measures()
    again.add([CollectedEpisode(0, True, 9, 1.0)], "online")  # failures were not reported before it
    assert again.measures() == {"base": SuccessRate(0, 20), "policy": SuccessRate(1, 21)}


def test_without_a_limit_all_episodes_of_the_base_count() -> None:
    """Actors do not step together. A state holds all outcomes."""
    found = TrainingEpisodes()
    found.add([CollectedEpisode(0, True, 1, 1.0)], "base")
    found.add([CollectedEpisode(0, False, 1, 0.0)], "online")
    again = TrainingEpisodes.from_state(found.state_dict())
    assert (again.base, again.late, list(again.recent)) == ([True], [], [False])
    assert not again.favour_policy()
