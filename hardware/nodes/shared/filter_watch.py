"""What the safety filter last said: whoever starts a policy should hear that its commands lead nowhere."""

from __future__ import annotations

from hardware.bus.protocol import Bus
from hardware.messages import Diagnostics, Status
from hardware.topics import SAFETY_STATE

PASSING = ("armed", "flying")  # phases in which commands are heard


class FilterWatch:
    """Listens to `safety/state`."""

    def __init__(self, bus: Bus) -> None:
        self._said: Status | None = None
        SAFETY_STATE.subscribe(bus, self._hear)

    @property
    def passes(self) -> bool:
        """Does the filter say that commands are heard?"""
        return self._said is not None and self._said.values.get("phase") in PASSING

    @property
    def reason(self) -> str:
        """Why it hears none, in its words; empty while it does, or was never heard."""
        return "" if self._said is None or self.passes else f"{self._said.name}: {self._said.message}"

    @property
    def hint(self) -> str:
        """To be said behind the answer to ~/start; empty while the filter passes commands, or was never
        heard.
        """
        said = self._said
        if said is None or said.values.get("phase", PASSING[0]) in PASSING:
            return ""
        return f", but {said.name} is {said.values['phase']}: arm it by robo-rl call {said.name}/arm"

    def _hear(self, message: Diagnostics, received_s: float) -> None:
        self._said = message.status[0] if message.status else self._said


def unarmed(name: str, sentence: str) -> str:
    """The status of a filter that passes nothing: why, and what makes it go on."""
    return f"{sentence}; it goes on after {name}/arm"
