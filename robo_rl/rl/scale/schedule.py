"""Permission to collect and to learn, with bounds on old weights and on data that is not learned from yet.

The learner's weights have a version, which rises by one with each block that it learns from. An actor gets
permission (a grant) to collect a block with the newest version. Three rules hold at every instant:

- While an actor acts with version v, the learner's version is at most v + staleness * actors.
- An actor has at most two blocks that are running, waiting or not learned from yet; one with staleness=0.
- The steps of a phase are never exceeded: what is granted counts, until it arrives or its actor is lost.

With staleness=0 all actors collect one block with the same weights, then the learner learns from these blocks
in the order of the actors. The result then does not depend on timing at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from robo_rl.core.errors import EnvError
from robo_rl.rl.collect import Phase

MOST_DEATHS = 3  # of an actor in a row, without a block between them


@dataclass(frozen=True)
class Grant:
    """Permission to collect `steps` control steps of all lanes of an actor.

    version: of the weights. env_steps: of the run when it was granted.
    """

    version: int
    phase: Phase
    steps: int
    env_steps: int


@dataclass
class Slot:
    """Place of one actor, which a new actor takes when it is lost.

    incarnation: number of actors before this one. ready: it is running. granted: blocks that have not
    arrived. arrived: blocks that were not learned from. deaths: in a row.
    """

    incarnation: int = 0
    ready: bool = False
    granted: deque[Grant] = field(default_factory=deque)
    arrived: deque[Grant] = field(default_factory=deque)
    deaths: int = 0


class Schedule:
    """Bookkeeping of grants. lanes: of each actor. block_steps: control steps of a block."""

    def __init__(self, actors: int, lanes: int, block_steps: int, staleness: int) -> None:
        self.slots = [Slot() for _ in range(actors)]
        self.lanes, self.block_steps = lanes, block_steps
        self.rounds = staleness == 0
        self.bound = staleness * actors  # versions
        self.version, self.replaced, self.lost_env_steps = 0, 0, 0

    def started(self, slot: int) -> None:
        """The actor of this slot is ready."""
        self.slots[slot].ready = True

    def grants(self, phase: Phase, env_steps: int, limit: int) -> Iterator[tuple[int, Grant]]:
        """(slot, grant) for every actor that may begin another block now.

        env_steps: of the run so far, all learned from. limit: steps at which this phase ends.
        """
        if self.rounds and not all(slot.ready and self._load(slot) == 0 for slot in self.slots):
            return
        most = 1 if self.rounds else 2
        left = limit - env_steps - self.outstanding * self.lanes
        for load in range(most):  # one block for every actor before the second one of any
            for index, slot in enumerate(self.slots):
                steps = min(self.block_steps, -(-left // self.lanes))
                if slot.ready and self._load(slot) == load and steps > 0:
                    grant = Grant(self.version, phase, steps, env_steps)
                    slot.granted.append(grant)
                    left -= steps * self.lanes
                    yield index, grant

    @property
    def outstanding(self) -> int:
        """Control steps, of the lanes of one actor, that are granted and not learned from."""
        return sum(grant.steps for slot in self.slots for grant in (*slot.granted, *slot.arrived))

    @staticmethod
    def _load(slot: Slot) -> int:
        return len(slot.granted) + len(slot.arrived)

    def delivered(self, slot: int) -> None:
        """The oldest granted block of this slot has arrived."""
        at = self.slots[slot]
        at.arrived.append(at.granted.popleft())
        at.deaths = 0

    def may_learn(self) -> bool:
        """True if a new version leaves no acting actor with weights that are too old, and the round is
        complete.
        """
        acting = [grant.version for slot in self.slots for grant in slot.granted]
        return not acting or (not self.rounds and self.version + 1 - min(acting) <= self.bound)

    def admitted(self, slot: int, *, learned: bool) -> None:
        """The oldest arrived block of this slot is in the replay. learned: the weights have changed."""
        self.slots[slot].arrived.popleft()
        self.version += learned

    def renewed(self) -> None:
        """The weights have changed without a block, between two phases: no actor is acting."""
        self.version += 1

    def lost(self, slot: int, cause: str) -> None:
        """The actor of this slot has died: its grants return, its blocks that have arrived stay.

        Raises EnvError if the actors of this slot have died several times without delivering a block.
        """
        at = self.slots[slot]
        at.deaths += 1
        if at.deaths >= MOST_DEATHS:
            raise EnvError(
                f"Actor {slot} has died {at.deaths} times in a row before it delivered a block ({cause}). "
                "Look for too little memory, or run without launcher=ray to see the error of the simulator."
            )
        self.lost_env_steps += self.lanes * sum(grant.steps for grant in at.granted)
        at.granted.clear()
        at.ready = False
        at.incarnation += 1
        self.replaced += 1

    def state_dict(self) -> dict[str, list[int]]:
        return {
            "incarnations": [slot.incarnation for slot in self.slots],
            "counters": [self.version, self.replaced, self.lost_env_steps],
        }

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        """Continue as a new learner: all actors are new ones, with new seeds."""
        for slot, incarnation in zip(self.slots, state["incarnations"], strict=True):
            slot.incarnation = int(incarnation) + 1
        self.version, self.replaced, self.lost_env_steps = map(int, state["counters"])
