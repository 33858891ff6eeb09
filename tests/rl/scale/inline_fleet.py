"""Actors in this process, for tests: which of them is fast, slow or lost is drawn at random."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from robo_rl.rl.scale.actor import ActorInfo, ActorParts, Failure, RolloutActor, Weights
from robo_rl.rl.scale.remote_collector import ActorLost, ActorReady, Delivered, Event
from robo_rl.rl.scale.schedule import Grant


class InlineFleet:
    """Runs the oldest call of a random actor at each poll. deaths: probability that it dies instead."""

    def __init__(self, build: Callable[[int, int], ActorParts], seed: int, deaths: float = 0.0) -> None:
        self._build, self._random, self._deaths = build, Random(seed), deaths
        self._actors: dict[int, RolloutActor] = {}
        self._calls: dict[int, deque[Any]] = {}
        self.ran: list[tuple[int, Grant]] = []
        self.died: list[int] = []

    def start(self, slot: int, incarnation: int) -> None:
        self._actors[slot] = RolloutActor(self._build, slot, incarnation)
        self._calls[slot] = deque([None])

    def submit(self, slot: int, grant: Grant, weights: Any) -> None:
        self._calls[slot].append((grant, weights))

    def put(self, weights: Weights) -> Any:
        return weights

    def end(self, slot: int) -> None:
        self._calls[slot].clear()

    def poll(self, timeout_s: float) -> list[Event]:
        waiting = sorted(slot for slot, calls in self._calls.items() if calls)
        if not waiting:
            return []
        slot = self._random.choice(waiting)
        if self._random.random() < self._deaths:
            self.died.append(slot)
            self._calls[slot].clear()
            return [ActorLost(slot, "has died")]
        call = self._calls[slot].popleft()
        if call is None:
            assert isinstance(self._actors[slot].about(), ActorInfo)
            return [ActorReady(slot)]
        self.ran.append((slot, call[0]))
        block = self._actors[slot].collect(*call)
        assert not isinstance(block, Failure)
        return [Delivered(slot, block)]
