"""Actors from which nothing is heard although something is expected: that they are ready, or a block.

Only time counts in which the learner listens: after an evaluation of minutes, what has arrived meanwhile may
not have been read yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from robo_rl.core.errors import EnvError
from robo_rl.rl.scale.schedule import Slot

SAY_S = 60.0  # silence after which the user is told
START_S = 300.0  # silence after which an actor counts as lost, and time in which the first one must be ready


@dataclass
class _LastMessage:
    """heard_s: on the clock of `Silence`. reported: the user knows that this actor is awaited."""

    heard_s: float
    reported: bool = False


class Silence:
    """Measures the silence of the actors of these slots, by a clock that runs while the learner listens."""

    def __init__(self, slots: list[Slot]) -> None:
        self._slots, self._now_s = slots, 0.0
        self._since = [_LastMessage(0.0) for _ in slots]
        self._none_ready_since_s: float | None = None

    def listened(self, seconds: float) -> None:
        """The learner has listened to all actors for this time."""
        self._now_s += seconds

    def started(self, slot: int) -> None:
        """A new actor was started in this slot."""
        self._since[slot] = _LastMessage(self._now_s)

    def heard(self, slot: int) -> None:
        """The actor of this slot has answered, or got a block to collect while it had none."""
        self._since[slot].heard_s = self._now_s

    def silent_s(self, slot: int) -> float:
        """Time for which the actor of this slot has been awaited [s]; 0 if nothing is expected of it."""
        at = self._slots[slot]
        return self._now_s - self._since[slot].heard_s if at.granted or not at.ready else 0.0

    def hanging(self) -> list[int]:
        """Slots of actors that were ready and have delivered nothing for `START_S`."""
        return [i for i, slot in enumerate(self._slots) if slot.ready and self.silent_s(i) > START_S]

    def check_ready(self, needs_all: bool) -> None:
        """Raise EnvError if no actor has been ready for `START_S`; with `needs_all`, if any has not."""
        late = [i for i, slot in enumerate(self._slots) if not slot.ready and self.silent_s(i) > START_S]
        if any(slot.ready for slot in self._slots):
            self._none_ready_since_s = None
            if needs_all and late:
                raise EnvError(
                    f"{_named(late)} not ready after {START_S:.0f} s, and with staleness=0 all actors take "
                    "turns. See what the Ray cluster is busy with (`ray status`), lower actors, or continue "
                    "with staleness=1 and resume=true."
                )
        elif self._none_ready_since_s is None:
            self._none_ready_since_s = self._now_s
        elif self._now_s - self._none_ready_since_s > START_S:
            raise EnvError(
                f"No actor was ready for {START_S:.0f} s. See what the Ray cluster is busy with (`ray "
                "status`), or run without ray_address."
            )

    def sentences(self) -> list[str]:
        """What to tell of actors that have been silent for `SAY_S`, once of each."""
        late = [i for i, each in enumerate(self._since) if not each.reported and self.silent_s(i) > SAY_S]
        for slot in late:
            self._since[slot].reported = True
        unready = [slot for slot in late if not self._slots[slot].ready]
        hanging = [slot for slot in late if self._slots[slot].ready]
        notices = []
        if unready:
            notices.append(
                f"{_named(unready)} not ready after {SAY_S:.0f} s. See what the Ray cluster is busy with "
                "(`ray status`)."
            )
        if hanging:
            notices.append(
                f"{_named(hanging)} silent: no block for {SAY_S:.0f} s. After {START_S:.0f} s a new actor "
                "takes the place; if the simulator is that slow, set a smaller block_steps."
            )
        return notices


def _named(slots: Iterable[int]) -> str:
    """The actors with a verb: Actor 2 is, Actors 0, 2 are."""
    numbers = [str(slot) for slot in slots]
    return f"Actors {', '.join(numbers)} are" if len(numbers) > 1 else f"Actor {numbers[0]} is"
