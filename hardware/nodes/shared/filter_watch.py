"""Last status of the safety filter, for nodes whose commands it may drop."""

from __future__ import annotations

from hardware.bus.protocol import Bus
from hardware.messages import Diagnostics, Status
from hardware.topics import SAFETY_STATE
from robo_rl.core.text.commands import command

PASSING = ("armed", "flying")  # phases in which commands pass


class FilterWatch:
    """Subscribes to `safety/state`."""

    def __init__(self, bus: Bus) -> None:
        self._status: Status | None = None
        self._namespace = bus.namespace
        SAFETY_STATE.subscribe(bus, self._on_status)

    @property
    def passes(self) -> bool:
        """True when the filter reports that it passes commands."""
        return self._status is not None and self._status.values.get("phase") in PASSING

    @property
    def holds(self) -> bool:
        """True when the filter reports that it could pass commands, and follows none."""
        return self.passes and self._status is not None and self._status.level > 0

    @property
    def reason(self) -> str:
        """Why the filter passes none, in its words; empty while it does, or without a status."""
        return "" if self._status is None or self.passes else f"{self._status.name}: {self._status.message}"

    @property
    def hint(self) -> str:
        """Addition to the answer of ~/start; empty while the filter passes commands, or without a status."""
        status = self._status
        if status is None or status.values.get("phase", PASSING[0]) in PASSING:
            return ""
        return f", but {status.name} is {status.values['phase']}: arm it by {self.arm_command}"

    @property
    def arm_command(self) -> str:
        """Command that arms the filter; empty without a status."""
        if self._status is None:
            return ""
        return command(f"call {self._status.name}/arm", namespace=self._namespace or None)

    def _on_status(self, message: Diagnostics, received_s: float) -> None:
        self._status = message.status[0] if message.status else self._status


def unarmed(name: str, sentence: str) -> str:
    """Status of a filter that passes nothing: the reason, and how to continue."""
    return f"{sentence}; it goes on after {name}/arm"
