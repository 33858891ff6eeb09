"""Actors that hang or never become ready: the user is told, and the run does not wait for ever."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

from robo_rl.core.errors import EnvError
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.running import RewardTransform
from robo_rl.rl.scale import remote_collector
from robo_rl.rl.scale.remote_collector import ActorReady, Event, RemoteCollector
from robo_rl.rl.scale.schedule import Grant, Schedule

pytestmark = pytest.mark.wrong_types  # the learner and the reward, which waiting does not need, are None


class QuietFleet:
    """Actors of which those in `starting` become ready, and no one delivers. A poll takes its whole time."""

    def __init__(self, starting: list[int]) -> None:
        self.now_s = 0.0
        self.starting, self.ended = set(starting), list[int]()
        self._events: deque[Event] = deque()

    def start(self, slot: int, incarnation: int) -> None:
        if slot in self.starting:
            self._events.append(ActorReady(slot))

    def submit(self, slot: int, grant: Grant, weights: Any) -> None: ...

    def put(self, weights: Any) -> Any: ...

    def end(self, slot: int) -> None:
        self.ended.append(slot)

    def poll(self, timeout_s: float) -> list[Event]:
        self.now_s += timeout_s
        events = list(self._events)
        self._events.clear()
        return events


@pytest.fixture(autouse=True)
def slow_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls of 10 s, and no weights to send."""
    monkeypatch.setattr(remote_collector, "WAIT_S", 10.0)
    monkeypatch.setattr(remote_collector, "weights_of", lambda _: {})


def collector(starting: list[int], staleness: int) -> tuple[RemoteCollector, QuietFleet, list[str]]:
    """Two actors whose blocks have 8 steps."""
    fleet, said, unused = QuietFleet(starting), list[str](), cast("Any", None)
    learner, reward = cast("OffPolicyLearner", unused), cast("RewardTransform", unused)
    limits: Any = {"base": 100}
    made = RemoteCollector(
        fleet, Schedule(2, 2, 8, staleness), learner, {}, reward, limits, said.append, lambda: fleet.now_s
    )
    made.start()
    return made, fleet, said


def wait(made: RemoteCollector, fleet: QuietFleet, until_s: float) -> None:
    while fleet.now_s < until_s:
        made.collect("base", None, cast("Any", None), None)


def test_turns_do_not_wait_for_ever_for_an_actor_that_is_not_ready() -> None:
    """With staleness=0 nobody begins before all are ready, as in a cluster with too few free CPUs."""
    made, fleet, said = collector([0], staleness=0)
    wait(made, fleet, 70.0)
    assert [words.partition(".")[0] for words in said] == ["Actor 1 is not ready after 60 s"]
    with pytest.raises(EnvError, match="Actor 1 is not ready after 300 s, and with staleness=0 all actors"):
        wait(made, fleet, 400.0)
    assert 300.0 < fleet.now_s < 330.0
    assert len(said) == 1


def test_an_actor_that_hangs_is_replaced() -> None:
    """It is told after a minute, replaced after five, and given up when new ones hang as well."""
    made, fleet, said = collector([0, 1], staleness=1)
    wait(made, fleet, 290.0)
    assert [words.partition(".")[0] for words in said] == ["Actors 0, 1 are silent: no block for 60 s"]
    wait(made, fleet, 340.0)
    assert fleet.ended == [0, 1]
    assert [slot.incarnation for slot in made.schedule.slots] == [1, 1]
    assert (
        "Actor 0 has delivered nothing for 310 s and was ended: its running episodes and at most" in said[1]
    )
    with pytest.raises(EnvError, match="has died 3 times in a row before it delivered a block"):
        wait(made, fleet, 2000.0)


def test_the_others_go_on_without_an_actor_that_is_not_ready() -> None:
    """staleness=1: a run that has lost a machine of its cluster says which actor is missing."""
    made, fleet, said = collector([0], staleness=1)
    wait(made, fleet, 290.0)
    assert "Actor 1 is not ready after 60 s" in said[0]
    assert not fleet.ended


def test_an_actor_is_not_silent_while_the_learner_is_busy() -> None:
    """An evaluation of ten minutes, in which nobody listens, ends no actor."""
    made, fleet, said = collector([0, 1], staleness=1)
    wait(made, fleet, 20.0)
    fleet.now_s += 600.0
    made.collect("base", None, cast("Any", None), None)
    assert not fleet.ended
    assert not said


def test_no_actor_at_all_ends_the_run() -> None:
    made, fleet, _ = collector([], staleness=1)
    with pytest.raises(EnvError, match="No actor was ready for 300 s"):
        wait(made, fleet, 400.0)
