"""Advice after a training: one case for every sentence."""

from __future__ import annotations

import pytest

from robo_rl.eval.advice import advice, ends_at_once, warning
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.training_history import PARTS, EpisodeTally, TrainingHistory


def history(rates: list[float], base: EpisodeTally | None = None, late: int = 0) -> TrainingHistory:
    """Twenty episodes in each part, with these rates of success."""
    parts = [EpisodeTally(20, round(20 * rate), round(20 * rate), 0, late) for rate in rates]
    return TrainingHistory(base or EpisodeTally(), parts, limit_steps=200)


FLAT = [0.5] * PARTS
RISING = [i / PARTS for i in range(PARTS)]


@pytest.mark.parametrize(
    ("after", "before", "seen", "demos", "begins"),
    [
        (99, 50, history(RISING), True, ""),
        (96, 75, history(FLAT), True, ""),  # its interval ends at 98 %
        (90, 75, history(FLAT), True, "Record more demonstrations from the states in which"),
        (80, 50, history(RISING), True, "Train for more steps"),
        (40, 10, history(FLAT), True, "Record more demonstrations and train the base"),
        (40, 50, history(FLAT, late=5), True, "Allow longer episodes"),
        (40, 50, history(FLAT), False, "Give demonstrations"),
        (40, 50, history(FLAT), True, "Record more demonstrations from"),
        (0, 0, history([0.0] * PARTS), True, "No success and no reward"),
        (0, 0, TrainingHistory(EpisodeTally(20, 0, 5, 0, 0)), True, "No success was seen"),
        (0, 0, TrainingHistory(EpisodeTally(20, 0, 20, 0, 0), sparse=False), True, ""),
        (40, 50, TrainingHistory(), True, ""),
        (100, 100, TrainingHistory(EpisodeTally(20, 20, 20, 20, 0)), True, "The task ends at once"),
    ],
)
def test_each_figure_has_its_advice(
    after: int, before: int, seen: TrainingHistory, demos: bool, begins: str
) -> None:
    """The first words name the remedy; a policy that almost always succeeds needs none."""
    said = advice(SuccessRate(after, 100), SuccessRate(before, 100), seen, env_steps=1000, demos=demos)
    assert said.startswith(begins)
    assert bool(said) is bool(begins)


def test_demonstrations_that_critics_cannot_replay_are_not_advised() -> None:
    """Those of a base with a memory; more of them make a better base."""
    rate = SuccessRate(40, 100)
    said = advice(rate, rate, history(FLAT), env_steps=1000, demos=False, replays=False)
    assert said.startswith("Record more demonstrations from")


def test_a_run_from_scratch_has_no_base_to_train_again() -> None:
    """With demonstrations, which its critics replay; without them there are none to record more of."""
    rate, failed = SuccessRate(40, 100), SuccessRate(0, 100)
    said = advice(rate, None, history(FLAT), env_steps=1000, demos=True)
    assert said.startswith("Record more demonstrations from the states in which the policy fails, because")
    nothing = history([0.0] * PARTS)
    assert "record more demonstrations" in advice(failed, None, nothing, env_steps=1000, demos=True)
    assert "first train a base" in advice(failed, None, nothing, env_steps=1000, demos=False)


def test_a_rise_within_noise_is_none() -> None:
    """From 40 to 44 successes in 80 episodes may be chance (p = 0.32), to 60 hardly (p = 0.0009)."""
    assert history([0.5] * 8 + [0.55] * 4).rising() is None
    assert history([0.5] * 8 + [0.75] * 4).rising() == (SuccessRate(40, 80), SuccessRate(60, 80))


def test_base_without_success_is_reported_after_its_phase() -> None:
    """Ten failures of the base are reported when its phase ends, none before; one success is enough."""
    failed, worked = TrainingHistory(EpisodeTally(10, 0)), TrainingHistory(EpisodeTally(10, 1))
    told = {"has_base": True, "demos": True}
    assert warning(failed, base_done=False, **told) == ("", "")
    name, sentence = warning(failed, base_done=True, **told)
    assert name == "base"
    assert "any of its 10 training episodes" in sentence
    assert "reward=dense" in sentence
    assert warning(worked, base_done=True, **told) == ("", "")


def test_a_dense_reward_is_advised_where_the_environment_has_one() -> None:
    """Tasks such as recall/buttons refuse reward=dense."""
    for can_be_dense in (True, False):
        seen = TrainingHistory(EpisodeTally(10, 0), can_be_dense=can_be_dense)
        seen = TrainingHistory.from_json(seen.to_json())
        told = (
            warning(seen, has_base=True, demos=True, base_done=True)[1],
            advice(SuccessRate(0, 8), None, seen, env_steps=1000, demos=False),
        )
        assert all(("reward=dense" in said) is can_be_dense for said in told)
        assert all("check the environment's success" in said for said in told)


def test_success_that_does_not_end_episodes_asks_for_no_longer_ones() -> None:
    """An environment that truncates only: all its successes last for the whole 30 steps."""
    seen = TrainingHistory(limit_steps=30, sparse=False)
    for i in range(24):
        seen.add(i % 3 == 0, 30, -1.0, of_base=False, progress=i / 24)
    said = advice(SuccessRate(3, 8), None, seen, env_steps=1000, demos=False)
    assert said.startswith("Give demonstrations")


def test_episodes_are_counted_by_part() -> None:
    """The part of an episode is that of its end; a success in the first step, and one near the limit, are
    told apart; the counts survive a checkpoint.
    """
    seen = TrainingHistory(limit_steps=100)
    seen.add(True, 1, 1.0, of_base=True, progress=0.1)
    seen.add(True, 95, 1.0, of_base=False, progress=0.5)
    seen.add(True, 100, 1.0, of_base=False, progress=0.5)  # a time-out: when it succeeded is unknown
    seen.add(False, 100, 0.0, of_base=False, progress=1.0)
    assert seen.base == EpisodeTally(1, 1, 1, 1, 0)
    assert seen.parts[PARTS // 2] == EpisodeTally(2, 2, 2, 0, 1)
    assert seen.parts[-1] == EpisodeTally(1)
    assert TrainingHistory.from_json(seen.to_json()) == seen
    assert not ends_at_once(seen.all)
