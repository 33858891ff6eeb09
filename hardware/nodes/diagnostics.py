"""All nodes' own words in one list, and who has fallen silent."""

from __future__ import annotations

from collections.abc import Callable

from hardware.bus.protocol import Bus
from hardware.messages import Diagnostics, Status
from hardware.nodes.shared.own_status import ENDS
from hardware.topics import (
    CAMERA_STATUS,
    DIAGNOSTICS,
    DRIVER_STATUS,
    LOOP_STATUS,
    POLICY_STATUS,
    SAFETY_STATE,
)

SILENT_S = 2.0  # a node that said nothing for this long is stale, unless it said that it ends
PARTING_S = (
    3.0  # after a node has said so, what others say comes from that: the filter hears no command, and lands
)
OK, STALE = 0, 3
_PERIOD_S = 1.0


class DiagnosticsNode:
    """Gathers what policy, loop, filter, camera and driver say of themselves; publishes `diagnostics` at 1
    Hz.

    In the terminal it says when a node is no longer well, and when it is again. A node that ends as it was
    asked to is well, and what its end brings about is no news.
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
        rows = [_now(status, now_s - at_s) for _, (status, at_s) in sorted(self._heard.items())]
        parting = any(
            ENDS in status.values and now_s - at_s < PARTING_S for status, at_s in self._heard.values()
        )
        for row in rows:
            quiet = ENDS in row.values if row.level == OK else parting and row.level < STALE
            if row.level != self._levels.get(row.name, OK) and not quiet:
                self._levels[row.name] = row.level
                self._say(f"{row.name}: {row.message}")
        self._tell(Diagnostics(self._bus.stamp(), tuple(rows)))


def _now(status: Status, silent_s: float) -> Status:
    """What a node said last, or that it has fallen silent since."""
    if silent_s <= SILENT_S:
        return status
    if ENDS in status.values and status.level == OK:
        return Status(status.name, OK, f"ended: {status.values[ENDS]}", status.values)
    said = f"said nothing for {silent_s:.0f} s; before that: {status.message}"
    return Status(status.name, STALE, said, status.values)
