"""Curriculum over tasks: shares by hand, draws that follow them, and an exact restart."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.rl.curriculum import RECENT, CurriculumSeeds, TaskCurriculum


def task_of(seed: int) -> int:
    return seed % 3


def test_chances_are_the_recent_rates_of_failures() -> None:
    """By hand, with half a success in one episode as prior: task 0 fails in 1.5 of 4, task 1 in 3.5 of 4, and
    task 2, which never fails, gets the least weight instead of 0.5 / 4.
    """
    curriculum = TaskCurriculum(3, least=0.25)
    assert curriculum.chances() == [1 / 3] * 3
    for task, outcomes in enumerate(((True, False, True), (False,) * 3, (True,) * 3)):
        for success in outcomes:
            curriculum.add(task, success)
    assert curriculum.chances() == pytest.approx([0.375 / 1.5, 0.875 / 1.5, 0.25 / 1.5])


def test_old_episodes_do_not_count() -> None:
    curriculum, fresh = TaskCurriculum(2), TaskCurriculum(2)
    for each, first in ((curriculum, False), (fresh, True)):
        each.add(0, first)
        for _ in range(RECENT):
            each.add(0, True)
    assert curriculum.chances() == fresh.chances()


def test_tasks_are_drawn_by_their_chances() -> None:
    """Tasks 0 and 1 are solved, task 2 never: weights 0.2, 0.2 and nearly 1. No seed comes twice."""
    curriculum = TaskCurriculum(3, least=0.2)
    for _ in range(RECENT):
        for task in range(3):
            curriculum.add(task, task < 2)
    seeds = list(islice(CurriculumSeeds("train", curriculum, task_of), 600))
    shares = Counter(map(task_of, seeds))
    assert [shares[task] / 600 for task in range(3)] == pytest.approx(curriculum.chances(), abs=0.06)
    assert len(set(seeds)) == 600
    assert set(seeds) <= set(islice(EpisodeSeeds("train"), 3000))


def test_a_restart_draws_the_same_seeds() -> None:
    """Position and state are enough."""
    curriculum = TaskCurriculum(3)
    seeds = CurriculumSeeds(("train", 1), curriculum, task_of)
    for seed in islice(seeds, 20):
        curriculum.add(task_of(seed), seed % 2 == 0)
    again = TaskCurriculum(3)
    again.load_state_dict(curriculum.state_dict())
    restarted = CurriculumSeeds(("train", 1), again, task_of, seeds.count)
    assert list(islice(seeds, 20)) == list(islice(restarted, 20))
