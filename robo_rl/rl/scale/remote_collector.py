"""Experience from actors in other processes, for the same training loop as lanes of this process.

One call of `collect` admits at most one block: it is added to the replay, then the learner does the updates
that belong to its environment steps, before it admits the next one. The ratio of updates to data is thus
that of a run without actors, whoever is slow.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from robo_rl.core.errors import CheckpointError
from robo_rl.core.lanes import Lanes
from robo_rl.core.text.counts import counted
from robo_rl.data.replay import Replay
from robo_rl.rl.collect import Act, Learn, Phase
from robo_rl.rl.decision_writer import Store
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.running import CollectedEpisode, RewardTransform
from robo_rl.rl.scale.actor import Weights, weights_of
from robo_rl.rl.scale.blocks import Block
from robo_rl.rl.scale.schedule import Grant, Schedule
from robo_rl.rl.scale.silence import Silence
from robo_rl.rl.scale.waiting import WaitTimes

WAIT_S = 0.5  # a stop request is seen after at most this time


@dataclass(frozen=True)
class ActorReady:
    """The actor of this slot is ready."""

    slot: int


@dataclass(frozen=True)
class Delivered:
    """A block from the actor of this slot."""

    slot: int
    block: Block


@dataclass(frozen=True)
class ActorLost:
    """The actor of this slot is lost."""

    slot: int
    cause: str


Event = ActorReady | Delivered | ActorLost


@runtime_checkable
class Fleet(Protocol):
    """Actors in other processes. Calls of one actor run in the order of `submit`."""

    def start(self, slot: int, incarnation: int) -> None:
        """Start a new actor in this slot; `poll` tells when it is ready."""
        ...

    def submit(self, slot: int, grant: Grant, weights: Any) -> None:
        """Let the actor collect a block. weights: from `put`."""
        ...

    def put(self, weights: Weights) -> Any:
        """Store weights where all actors can read them."""
        ...

    def end(self, slot: int) -> None:
        """End the actor of this slot at once; nothing more is heard of it."""
        ...

    def poll(self, timeout_s: float) -> list[Event]:
        """What has happened since the last call; waits up to `timeout_s` for the first event."""
        ...


class RemoteCollector:
    """Blocks of all actors, in the replays of the learner.

    replays: of all lanes; actor i has lanes i * n ... (i + 1) * n - 1. limits: steps at which the phases end.
    clock: time in seconds, by which an actor is silent.
    """

    def __init__(
        self,
        fleet: Fleet,
        schedule: Schedule,
        learner: OffPolicyLearner,
        replays: Mapping[str, Replay],
        reward: RewardTransform,
        limits: Mapping[Phase, int],
        say: Callable[[str], None] = print,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fleet, self.schedule, self.learner, self.replays = fleet, schedule, learner, replays
        self.reward, self.limits, self.say = reward, limits, say
        self.env_steps = 0
        self.waiting, self._silence, self._clock = WaitTimes(), Silence(schedule.slots), clock
        self._inbox: deque[tuple[int, Block]] = deque()
        self._admitted = [-1] * len(schedule.slots)  # incarnation of the newest block in the replay
        self._sent: tuple[int, Any] | None = None  # version, and where its weights are stored
        self._phase: Phase | None = None

    @property
    def num_lanes(self) -> int:
        """Number of environments of all actors."""
        return len(self.schedule.slots) * self.schedule.lanes

    def start(self) -> None:
        """Start all actors. Call once, after a checkpoint was loaded."""
        for index, slot in enumerate(self.schedule.slots):
            self._start(index, slot.incarnation)

    def _start(self, slot: int, incarnation: int) -> None:
        self.fleet.start(slot, incarnation)
        self._silence.started(slot)

    def collect(
        self, phase: Phase, act: Act | None, store: Store, learn: Learn | None
    ) -> list[CollectedEpisode]:
        """Admit one block, and learn from it; returns [] if none has arrived for `WAIT_S`."""
        if phase != self._phase:
            self._phase = phase
            self.schedule.renewed()  # a burn-in has changed the critics
        began_s, running = time.perf_counter(), self._any_ready()
        self._hand_out(phase)
        if (taken := self._take()) is None:
            self._receive(WAIT_S)
            waited_s = time.perf_counter() - began_s
            if running:  # the start of the actors is no waiting for data
                self.waiting.learner_waited_s += waited_s
                self.waiting.learner_s += waited_s
            return []
        slot, block = taken
        self._admit(slot, block, store)
        if learn is not None:
            learn(block.env_steps / self.num_lanes)
        self.schedule.admitted(slot, learned=learn is not None)
        self._receive(0.0)
        self.waiting.learner_s += time.perf_counter() - began_s
        return block.episodes

    def _hand_out(self, phase: Phase) -> None:
        """Give every actor that may begin another block the newest weights."""
        for slot, grant in self.schedule.grants(phase, self.env_steps, self.limits[phase]):
            if self._sent is None or self._sent[0] != grant.version:
                self._sent = grant.version, self.fleet.put(weights_of(self.learner))
            self.fleet.submit(slot, grant, self._sent[1])
            if len(self.schedule.slots[slot].granted) == 1:  # it had nothing to do before
                self._silence.heard(slot)

    def _take(self) -> tuple[int, Block] | None:
        """The next block to admit; None if there is none, or if learning must wait for an actor."""
        if not self._inbox or not self.schedule.may_learn():
            return None
        if self.schedule.rounds:
            self._inbox = deque(sorted(self._inbox, key=lambda item: item[0]))
        return self._inbox.popleft()

    def _receive(self, timeout_s: float) -> None:
        began_s = self._clock()
        events = self.fleet.poll(timeout_s)
        self._silence.listened(self._clock() - began_s)
        for event in events:
            if isinstance(event, ActorReady):
                self.schedule.started(event.slot)
                self._silence.heard(event.slot)
            elif isinstance(event, Delivered):
                self.schedule.delivered(event.slot)
                self._silence.heard(event.slot)
                self._inbox.append((event.slot, event.block))
                self.waiting.add(event.block, behind=self.schedule.version - event.block.version)
            else:
                self._replace(event)
        for index in self._silence.hanging():
            silent_s = self._silence.silent_s(index)
            self.fleet.end(index)
            self._replace(ActorLost(index, f"has delivered nothing for {silent_s:.0f} s and was ended"))
        self._silence.check_ready(needs_all=self.schedule.rounds)
        for sentence in self._silence.sentences():
            self.say(sentence)

    def _any_ready(self) -> bool:
        return any(slot.ready for slot in self.schedule.slots)

    def _replace(self, event: ActorLost) -> None:
        slot = self.schedule.slots[event.slot]
        lost = self.schedule.lanes * sum(grant.steps for grant in slot.granted)
        self.schedule.lost(event.slot, event.cause)
        self.say(
            f"Actor {event.slot} {event.cause}: its running episodes and at most {counted(lost, 'step')} are "
            "lost. A new actor takes its place, with new episodes."
        )
        self._start(event.slot, slot.incarnation)

    def _admit(self, slot: int, block: Block, store: Store) -> None:
        assert isinstance(store, Replay)
        first = slot * self.schedule.lanes
        if self._admitted[slot] != block.incarnation:
            lanes = Lanes.of(torch.arange(first, first + self.schedule.lanes, device=store.head.device))
            for replay in self._lane_replays():
                replay.cut_running(lanes)
            self._admitted[slot] = block.incarnation
        for name, decisions in block.decisions.items():
            target = store if name == "online" else self.replays[name]
            decisions.add_to(target, first, self.learner.cfg.gamma)
        self.env_steps += block.env_steps
        self.reward.largest = max(self.reward.largest, block.largest_reward)

    def _lane_replays(self) -> list[Replay]:
        """The replays that the actors fill; demonstrations are none."""
        return [replay for name, replay in self.replays.items() if name != "demo"]

    def state_dict(self) -> dict[str, Any]:
        """Counters; what actors hold is not saved."""
        return {
            "actors": self.schedule.state_dict(),
            "env_steps": self.env_steps,
            "reward_max": self.reward.largest,
            "waiting": self.waiting.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with new actors. Raises CheckpointError for a checkpoint of a run without actors, or with
        another number of them.
        """
        expected = len(self.schedule.slots)
        found = len(state["actors"]["incarnations"]) if "actors" in state else 0
        if found != expected:
            raise CheckpointError(
                f"The checkpoint was written with {counted(found, 'actor')}, expected {expected}. Resume "
                "with the launcher and the number of actors that the run was started with."
            )
        self.schedule.load_state_dict(state["actors"])
        self.env_steps, self.reward.largest = int(state["env_steps"]), float(state["reward_max"])
        self.waiting.load_state_dict(state["waiting"])
