"""Client of services of any type over DDS, compatible with rmw_cyclonedds."""

from __future__ import annotations

import time
from typing import Any

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.dds.service import Endpoints, decode_head, matched
from hardware.bus.dds.types import raw_type, struct
from robo_rl.core.errors import BusError

HEAD = "uint64 client_guid\nint64 sequence\n"  # precedes every request and response
EMPTY = "uint8 structure_needs_at_least_one_member\n"
_POLL_S = 0.0005


def request_and_response(ros_type: str) -> dict[str, str]:
    """Types of a service's request and response: announced name -> name in the store of message types.

    The store only has messages, so the second name has `/msg/` in place of `/srv/`.
    """
    names = (f"{ros_type}_{part}" for part in ("Request", "Response"))
    return {name: name.replace("/srv/", "/msg/") for name in names}


def register_service(ros: RosTypes, ros_type: str, request: str = EMPTY, response: str = EMPTY) -> None:
    """Add a type of service to the store. request, response: the two parts of its .srv file."""
    from rosbags.typesys import get_types_from_msg

    for name, text in zip(request_and_response(ros_type).values(), (request, response), strict=True):
        if name not in ros.store.fielddefs:
            ros.store.register(get_types_from_msg(HEAD + text, name))


class ServiceClient:
    """Client of one service of a registered type. Not thread-safe.

    carriers: classes that announce request and response; without them their real types are announced.
    """

    def __init__(
        self,
        participant: Any,
        ros: RosTypes,
        service: str,
        ros_type: str,
        carriers: tuple[Any, Any] | None = None,
    ) -> None:
        self.service, self._ros, self._sequence = service, ros, 0
        parts = request_and_response(ros_type)
        self._request, self._response = parts.values()
        self._carrier, answered = carriers or (
            raw_type(struct(ros, name, announced)) for announced, name in parts.items()
        )
        self._ends = Endpoints(participant, service, False, self._carrier, answered)

    def ready(self) -> bool:
        """True when reader and writer of a server are discovered. An earlier request would be lost."""
        return matched(self._ends, "serviceid")

    def send_request(self, **fields: Any) -> int:
        """Send a request without waiting; returns its sequence number."""
        self._sequence += 1
        client = self._ends.writer.get_instance_handle() % 2**64
        request = self._ros.new(self._request, client_guid=client, sequence=self._sequence, **fields)
        cdr = bytes(self._ros.store.serialize_cdr(request, self._request, little_endian=True))
        self._ends.writer.write(self._carrier.of(cdr + bytes(-len(cdr) % 4)))
        return self._sequence

    def call(self, timeout_s: float, **fields: Any) -> Any:
        """Send a request and wait for its response.

        Raises BusError when the response does not come in time or cannot be decoded.
        """
        number, deadline_s = self.send_request(**fields), time.monotonic() + timeout_s
        client = self._ends.writer.get_instance_handle() % 2**64
        while time.monotonic() < deadline_s:
            for sample in self._ends.reader.take(16):
                if sample.sample_info.valid_data and decode_head(sample.cdr) == (client, number):
                    return self._ros.parse(sample.cdr, self._response)
            time.sleep(_POLL_S)
        raise BusError(
            f"The service '{self.service}' did not respond within {timeout_s:g} s; see the output of its "
            "node."
        )

    def close(self) -> None:
        """Delete the endpoints."""
        self._ends.writer = self._ends.reader = None
