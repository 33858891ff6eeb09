"""Grants: bounds on old weights and on steps, whoever is slow or lost."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robo_rl.core.errors import EnvError
from robo_rl.rl.scale.schedule import MOST_DEATHS, Schedule


@settings(max_examples=200, deadline=None)
@given(
    actors=st.integers(1, 5),
    lanes=st.integers(1, 4),
    block=st.integers(1, 9),
    staleness=st.integers(0, 3),
    limit=st.integers(1, 300),
    seed=st.integers(0, 2**16),
)
def test_the_three_rules_hold_in_any_order_of_events(
    actors: int, lanes: int, block: int, staleness: int, limit: int, seed: int
) -> None:
    """Random deliveries, deaths and learning: no weights beyond the bound, no step beyond the limit, and the
    run always ends.
    """
    schedule, random = Schedule(actors, lanes, block, staleness), Random(seed)
    env_steps, inbox, deaths = 0, [], 3
    for _ in range(20_000):
        list(schedule.grants("online", env_steps, limit))
        assert env_steps + schedule.outstanding * lanes < limit + lanes
        acting = [grant.version for slot in schedule.slots for grant in slot.granted]
        assert all(schedule.version - version <= schedule.bound for version in acting)
        assert all(
            len(slot.granted) + len(slot.arrived) <= (1 if staleness == 0 else 2) for slot in schedule.slots
        )
        if env_steps >= limit:
            break
        at = random.randrange(actors)
        slot = schedule.slots[at]
        if not slot.ready:
            schedule.started(at)
        elif slot.granted and deaths and random.random() < 0.1:
            deaths -= 1
            slot.deaths = 0
            schedule.lost(at, "has died")
        elif slot.granted and random.random() < 0.5:
            inbox.append((at, slot.granted[0].steps))
            schedule.delivered(at)
        elif inbox and schedule.may_learn():
            first, steps = inbox.pop(0)
            env_steps += steps * lanes
            schedule.admitted(first, learned=True)
    assert limit <= env_steps < limit + lanes
    assert schedule.replaced == 3 - deaths == sum(slot.incarnation for slot in schedule.slots)


def test_a_slow_actor_holds_the_learner_back() -> None:
    """With a bound of 2 versions, the learner learns from two blocks of the fast actor and then waits for
    the slow one.
    """
    schedule = Schedule(actors=2, lanes=1, block_steps=5, staleness=1)
    schedule.started(0)
    schedule.started(1)
    learned = 0
    for _ in range(10):
        list(schedule.grants("online", 5 * learned, 1000))
        if schedule.slots[0].granted:
            schedule.delivered(0)
        if schedule.may_learn():
            schedule.admitted(0, learned=True)
            learned += 1
    assert (learned, schedule.version) == (2, 2)
    schedule.delivered(1)  # its second block still waits with the first version
    assert not schedule.may_learn()
    schedule.delivered(1)
    assert schedule.may_learn()


def test_turns_need_all_actors() -> None:
    """With staleness=0 nobody begins before all are ready, and nobody learns before all have delivered."""
    schedule = Schedule(actors=2, lanes=3, block_steps=5, staleness=0)
    schedule.started(0)
    assert not list(schedule.grants("online", 0, 1000))
    schedule.started(1)
    assert [slot for slot, _ in schedule.grants("online", 0, 1000)] == [0, 1]
    schedule.delivered(1)
    assert not schedule.may_learn()
    schedule.delivered(0)
    assert schedule.may_learn()
    schedule.admitted(0, learned=True)
    assert not list(schedule.grants("online", 15, 1000))
    schedule.admitted(1, learned=True)
    assert [grant.version for _, grant in schedule.grants("online", 30, 1000)] == [2, 2]


def test_the_last_grant_is_as_short_as_the_rest() -> None:
    """34 steps are left for lanes of 4 and blocks of 5: 20, then 16, which is 2 too many for whole steps."""
    schedule = Schedule(actors=1, lanes=4, block_steps=5, staleness=1)
    schedule.started(0)
    assert [grant.steps for _, grant in schedule.grants("base", 66, 100)] == [5, 4]


def test_the_steps_of_a_lost_actor_are_granted_again() -> None:
    schedule = Schedule(actors=2, lanes=2, block_steps=10, staleness=1)
    schedule.started(0)
    assert sum(grant.steps for _, grant in schedule.grants("base", 0, 40)) == 20
    schedule.lost(0, "has died")
    schedule.started(1)
    assert sum(grant.steps for _, grant in schedule.grants("base", 0, 40)) == 20
    assert (schedule.replaced, schedule.lost_env_steps) == (1, 40)


def test_an_actor_that_only_dies_ends_the_run() -> None:
    """Each new actor of a slot may die, but not without ever delivering."""
    schedule = Schedule(actors=1, lanes=1, block_steps=1, staleness=1)
    for _ in range(MOST_DEATHS - 1):
        schedule.lost(0, "has died")
    with pytest.raises(EnvError, match="Actor 0 has died 3 times in a row before it delivered"):
        schedule.lost(0, "has died")


def test_a_new_learner_has_new_actors() -> None:
    """A resumed run repeats no seed of an actor: its slots have higher incarnations."""
    schedule = Schedule(2, 1, 1, 1)
    schedule.lost(1, "has died")
    again = Schedule(2, 1, 1, 1)
    again.load_state_dict(schedule.state_dict())
    assert [slot.incarnation for slot in again.slots] == [1, 2]
    assert (again.replaced, again.version) == (1, 0)
