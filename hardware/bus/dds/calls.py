"""Services of any type, asked over DDS as rmw_cyclonedds does: what the robots' own servers offer beside
Trigger.
"""

from __future__ import annotations

import time
from typing import Any

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.dds.service import Endpoints, decode_head, matched
from hardware.bus.dds.types import carry, struct
from robo_rl.core.errors import BusError

HEAD = "uint64 client_guid\nint64 sequence\n"  # stands before every request and reply
EMPTY = "uint8 structure_needs_at_least_one_member\n"
_LOOK_S = 0.0005


def halves(ros_type: str) -> dict[str, str]:
    """What is announced of a service's request and reply -> the store's name for it, which knows messages
    alone.
    """
    names = (f"{ros_type}_{half}" for half in ("Request", "Response"))
    return {name: name.replace("/srv/", "/msg/") for name in names}


def register_service(ros: RosTypes, ros_type: str, request: str = EMPTY, reply: str = EMPTY) -> None:
    """Let the store know a type of service by the texts of its two halves, as its .srv file has them."""
    from rosbags.typesys import get_types_from_msg

    for name, text in zip(halves(ros_type).values(), (request, reply), strict=True):
        if name not in ros.store.fielddefs:
            ros.store.register(get_types_from_msg(HEAD + text, name))


class Caller:
    """Calls one service, whose type was registered. Not thread-safe."""

    def __init__(self, participant: Any, ros: RosTypes, service: str, ros_type: str) -> None:
        self.service, self._ros, self._sequence = service, ros, 0
        self._request, self._reply = halves(ros_type).values()
        self._made, read = (
            carry(struct(ros, name, announced)) for announced, name in halves(ros_type).items()
        )
        self._ends = Endpoints(participant, service, False, self._made, read)

    def ready(self) -> bool:
        """Are both halves of a server found? Before, a request would be lost."""
        return matched(self._ends, "serviceid")

    def ask(self, **fields: Any) -> int:
        """Send a request without waiting; returns its number."""
        self._sequence += 1
        client = self._ends.writer.get_instance_handle() % 2**64
        request = self._ros.new(self._request, client_guid=client, sequence=self._sequence, **fields)
        cdr = bytes(self._ros.store.serialize_cdr(request, self._request, little_endian=True))
        self._ends.writer.write(self._made.of(cdr + bytes(-len(cdr) % 4)))
        return self._sequence

    def call(self, timeout_s: float, **fields: Any) -> Any:
        """Ask and wait for the answer. Raises BusError when it does not come in time or cannot be read."""
        number, deadline_s = self.ask(**fields), time.monotonic() + timeout_s
        client = self._ends.writer.get_instance_handle() % 2**64
        while time.monotonic() < deadline_s:
            for sample in self._ends.reader.take(16):
                if sample.sample_info.valid_data and decode_head(sample.cdr) == (client, number):
                    return self._ros.parse(sample.cdr, self._reply)
            time.sleep(_LOOK_S)
        raise BusError(
            f"The service '{self.service}' did not answer within {timeout_s:g} s; see what its node prints."
        )

    def close(self) -> None:
        """Let go of the endpoints."""
        self._ends.writer = self._ends.reader = None
