"""All nodes' own words in one list, and who has fallen silent."""

from __future__ import annotations

from collections.abc import Callable

from hardware.bus.protocol import Bus
from hardware.messages import Diagnostics, Status
from hardware.topics import CAMERA_STATUS, DIAGNOSTICS, DRIVER_STATUS, LOOP_STATUS, POLICY_STATUS, SAFETY_STATE

SILENT_S = 2.0  # a node that said nothing for this long is stale
_PERIOD_S = 1.0


class DiagnosticsNode:
    """Gathers what policy, loop, filter, camera and driver say of themselves; publishes `diagnostics` at 1 Hz.

    In the terminal it says when a node is no longer well, and when it is again.
    """

    def __init__(self, bus: Bus, say: Callable[[str], None] = print) -> None:
        self._bus, self._say = bus, say
        self._levels: dict[str, int] = {}
        self._heard: dict[str, tuple[Status, float]] = {}
        self._tell = DIAGNOSTICS.publisher(bus)
        for topic in (POLICY_STATUS, LOOP_STATUS, SAFETY_STATE, CAMERA_STATUS, DRIVER_STATUS):
            topic.subscribe(bus, self._hear)
        bus.timer(_PERIOD_S, self._report)

    def stop(self, why: str) -> str:
        """Nothing moves because of this node."""
        return f"{why}: done"

    @property
    def at_rest(self) -> bool:
        return True

    def last_word(self) -> None:
        """Nothing needs saying."""

    def _hear(self, message: Diagnostics, received_s: float) -> None:
        for status in message.status:
            self._heard[status.name] = status, received_s

    def _report(self) -> None:
        now_s = self._bus.now()
        rows = []
        for name, (status, at_s) in sorted(self._heard.items()):
            silent_s = now_s - at_s
            stale = Status(name, 3, f"said nothing for {silent_s:.0f} s; before that: {status.message}", status.values)
            rows.append(stale if silent_s > SILENT_S else status)
            if rows[-1].level != self._levels.get(name, 0):
                self._levels[name] = rows[-1].level
                self._say(f"{name}: {rows[-1].message}")
        self._tell(Diagnostics(self._bus.stamp(), tuple(rows)))
