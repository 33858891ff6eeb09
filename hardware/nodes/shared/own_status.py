"""Status of a node; the last one of a node that ends as requested is no fault."""

from __future__ import annotations

from collections.abc import Mapping

from hardware.bus.protocol import Bus
from hardware.messages import Diagnostics, Status
from hardware.topic import Topic

ENDS = "ends"  # key of a status: why the node ends; distinguishes it from one that fell silent


class OwnStatus:
    """One node's status on `topic`.

    name: the node's, unless it reports for something else, such as a camera. hardware_id: robot or device; by
    default the namespace, which is the robot's, or else the node's name.
    """

    def __init__(self, bus: Bus, topic: Topic[Diagnostics], name: str = "", hardware_id: str = "") -> None:
        self._bus, self._name, self._why = bus, name or bus.name, ""
        self._hardware = hardware_id or bus.namespace.strip("/") or self._name
        self._publish = topic.publisher(bus)

    def leave(self, why: str) -> None:
        """Report from now on that the node ends, because of `why`."""
        self._why = why

    def tell(
        self, level: int, sentence: str, values: Mapping[str, str] | None = None, orderly: bool = True
    ) -> None:
        """Publish a status. level: 0 ok, 1 warning, 2 error. orderly: expected in a node that ends."""
        details = dict(values or {})
        if self._why:
            details[ENDS] = self._why
            if orderly:
                level, sentence = 0, f"stopping: {self._why}"
        status = Status(self._name, level, sentence, details, self._hardware)
        self._publish(Diagnostics(self._bus.stamp(), (status,)))
