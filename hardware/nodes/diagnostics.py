"""Collects the status of all nodes in one list, and reports nodes that fall silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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

SILENT_S = 2.0  # a node silent for longer is stale, unless it reported its end
PARTING_S = (
    3.0  # faults of other nodes within this time are effects of a node's end, e.g. a filter without commands
)
MOST = 200  # nodes whose status is kept
OK, STALE = 0, 3
_PERIOD_S = 1.0


class DiagnosticsNode:
    """Collects the status of policy, loop, filter, camera and driver; publishes `/diagnostics` at 1 Hz.

    The topic is the same in every namespace, as ROS' tools expect; the names on it begin with the namespace.
    Reports in the terminal when a node's level changes. A node that ends as requested is well, and the
    effects of its end on others are not reported.
    """

    def __init__(self, bus: Bus, say: Callable[[str], None] = print) -> None:
        self._bus, self._say = bus, say
        self._levels: dict[str, int] = {}
        self._statuses: dict[str, tuple[Status, float]] = {}
        self._full = False  # reported that there are too many
        self._publish = DIAGNOSTICS.publisher(bus)
        for topic in (POLICY_STATUS, LOOP_STATUS, SAFETY_STATE, CAMERA_STATUS, DRIVER_STATUS):
            topic.subscribe(bus, self._on_status)
        bus.timer(_PERIOD_S, self._report)

    def stop(self, why: str) -> str:
        """Return the closing sentence; nothing moves because of this node."""
        return f"{why}: done"

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """Do nothing."""

    def _on_status(self, message: Diagnostics, received_s: float) -> None:
        for status in message.status:
            if status.name in self._statuses or len(self._statuses) < MOST:
                self._statuses[status.name] = status, received_s
            elif not self._full:
                self._full = True
                self._say(f"{self._bus.name}: more than {MOST} nodes report a status; others are left out.")

    def _report(self) -> None:
        now_s = self._bus.now()
        rows = [_now(status, now_s - at_s) for _, (status, at_s) in sorted(self._statuses.items())]
        parting = any(
            ENDS in status.values and now_s - at_s < PARTING_S for status, at_s in self._statuses.values()
        )
        for row in rows:
            quiet = ENDS in row.values if row.level == OK else parting and row.level < STALE
            if row.level != self._levels.get(row.name, OK) and not quiet:
                self._levels[row.name] = row.level
                self._say(f"{row.name}: {row.message}")
        place = f"{self._bus.namespace.strip('/')}/" if self._bus.namespace.strip("/") else ""
        named = tuple(replace(row, name=f"{place}{row.name}") for row in rows)
        self._publish(Diagnostics(self._bus.stamp(), named))


def _now(status: Status, silent_s: float) -> Status:
    """Last status of a node, or that it has been silent since."""
    if silent_s <= SILENT_S:
        return status
    if ENDS in status.values and status.level == OK:
        return replace(status, message=f"ended: {status.values[ENDS]}")
    message = f"silent for {silent_s:.0f} s; before that: {status.message}"
    return replace(status, level=STALE, message=message)
