"""std_srvs/Trigger as rmw_cyclonedds has it: the client's handle (uint64) and a count (int64) stand before
the payload.

The user data of both endpoints of a client or service hold its id, so that the other side can tell which two
belong together, and waits until it sees both.
"""

from __future__ import annotations

import struct as bits
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsSubscription
from cyclonedds.core import DDSException, InstanceState, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.idl import make_idl_struct, types
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware.bus.dds.types import PLAIN, carry, endpoint_qos
from hardware.bus.names import nobody_offers
from hardware.bus.protocol import Answer
from robo_rl.core.errors import BusError

ANY = ViewState.Any | SampleState.Any | InstanceState.Any
HEAD = bits.Struct("<4sQq")  # CDR header, client, count
READY_S = 0.1  # so long an answer waits for the client's other half to be found
_HEAD = {"client_guid": types.uint64, "sequence": types.int64}
_NAME = "std_srvs.srv.dds_.Trigger_"
_ON_THE_WIRE = f"{_NAME}Request_".replace(".", "::")
REQUEST = carry(make_idl_struct("Request_", f"{_NAME}Request_", _HEAD | {"empty": types.uint8}))
REPLY = carry(make_idl_struct("Response_", f"{_NAME}Response_", _HEAD | {"success": bool, "message": str}))
_ids = count(1)


def encode_request(client: int, sequence: int) -> bytes:
    """A request has no fields, which is one byte on the wire."""
    return HEAD.pack(b"\0\1\0\0", client, sequence) + b"\0"


def encode_reply(client: int, sequence: int, answer: Answer) -> bytes:
    """bool success, string message."""
    text = answer[1].encode() + b"\0"
    return HEAD.pack(b"\0\1\0\0", client, sequence) + bits.pack("<?3xI", answer[0], len(text)) + text


def decode_head(cdr: bytes) -> tuple[int, int]:
    """(client, sequence). Raises BusError for bytes that are none."""
    if len(cdr) < HEAD.size:
        raise BusError(f"A service message of {len(cdr)} bytes came; expected at least {HEAD.size}.")
    order = "<" if cdr[1] & 1 else ">"
    client, sequence = bits.unpack_from(f"{order}Qq", cdr, 4)
    return client, sequence


def decode_reply(cdr: bytes) -> Answer:
    """(success, message)."""
    order = "<" if cdr[1] & 1 else ">"
    try:
        success, length = bits.unpack_from(f"{order}?3xI", cdr, HEAD.size)
    except bits.error as error:
        raise BusError(f"The answer of a service cannot be read: {error}.") from error
    return bool(success), cdr[28 : 28 + length].rstrip(b"\0").decode(errors="replace")


class Endpoints:
    """The reader and writer of one client or service. asked, answered: its types, Trigger's unless others are
    given.
    """

    def __init__(
        self, participant: Any, service: str, serving: bool, asked: Any = REQUEST, answered: Any = REPLY
    ) -> None:
        key = participant.guid.bytes[:12] + next(_ids).to_bytes(4, "big")
        self.id = ".".join(f"{byte:x}" for byte in key)
        if key[0] < 16:
            self.id = " " + self.id  # as rmw_cyclonedds pads the first
        role = "serviceid" if serving else "clientid"
        qos = endpoint_qos(True, False, 10, f"{role}={self.id};")
        request = Topic(participant, f"rq{service}Request", asked, Qos(PLAIN))
        reply = Topic(participant, f"rr{service}Reply", answered, Qos(PLAIN))
        self.writer: Any = DataWriter(participant, reply if serving else request, qos)
        self.reader: Any = DataReader(participant, request if serving else reply, qos)


class Client:
    """Calls one Trigger service."""

    def __init__(self, participant: Any, service: str) -> None:
        self._participant = participant
        self.service, self.ends, self._sequence = service, Endpoints(participant, service, serving=False), 0
        self._waitset: Any = WaitSet(participant)
        self._waitset.attach(ReadCondition(self.ends.reader, ANY))

    def call(self, timeout_s: float) -> Answer:
        """Wait for the server, ask, wait for the answer. Raises BusError when either does not come in
        time.
        """
        deadline_s = time.monotonic() + timeout_s
        while not matched(self.ends, "serviceid"):
            if time.monotonic() >= deadline_s:
                raise nobody_offers(self.service, offered(self._participant), timeout_s)
            time.sleep(0.005)
        client = self.ends.writer.get_instance_handle() % 2**64
        self._sequence += 1
        self.ends.writer.write(REQUEST.of(encode_request(client, self._sequence)))
        while (left_s := deadline_s - time.monotonic()) > 0.0:
            self._waitset.wait(int(left_s * 1e9))
            for sample in self.ends.reader.take(16):
                if sample.sample_info.valid_data and decode_head(sample.cdr) == (client, self._sequence):
                    return decode_reply(sample.cdr)
        raise BusError(
            f"The service '{self.service}' did not answer within {timeout_s:g} s; see what its node prints."
        )

    def close(self) -> None:
        """Let go of the endpoints."""
        self._participant = self._waitset = self.ends.writer = self.ends.reader = None


def offered(participant: Any) -> set[str]:
    """Names of the Trigger services whose request readers can be seen."""
    seen = BuiltinDataReader(participant, BuiltinTopicDcpsSubscription).read(1000)
    servers = (end.topic_name for end in seen if end.type_name == _ON_THE_WIRE)
    return {name.removeprefix("rq").removesuffix("Request") for name in servers if name.startswith("rq/")}


class Server:
    """Offers one Trigger service. Nothing here waits: a filter's loop may not stand still for whoever asks
    it.
    """

    def __init__(self, participant: Any, service: str, callback: Callable[[], Answer]) -> None:
        self.ends, self._callback = Endpoints(participant, service, serving=True), callback
        self._waiting: list[
            tuple[str, float, bytes]
        ] = []  # (client, until when, answer) of those not yet found

    @property
    def waits(self) -> bool:
        """Is an answer still to be sent?"""
        return bool(self._waiting)

    def take(self, cdr: bytes, info: Any) -> None:
        """Do what one request asks for; answer when the client's reader is found: before, it would be
        lost.
        """
        client, sequence = decode_head(cdr)
        reply = encode_reply(client, sequence, self._callback())
        asker = self.ends.reader.get_matched_publication_data(info.publication_handle)
        if asker is None:
            return  # the client has gone
        self._waiting.append((user_data(asker, "clientid"), time.monotonic() + READY_S, reply))
        self.send()

    def send(self) -> None:
        """Answer those whose reader is found by now, and those that tell none or have been waited for long
        enough.
        """
        if not self._waiting:
            return
        found, now_s = _readers(self.ends, "clientid") | {""}, time.monotonic()
        ready = [row for row in self._waiting if row[0] in found or now_s >= row[1]]
        self._waiting = [row for row in self._waiting if row not in ready]
        for _, _, reply in ready:
            self.ends.writer.write(REPLY.of(reply))


def user_data(endpoint: Any, key: str) -> str:
    """The value of `key=value;` in an endpoint's user data; empty where there is none."""
    policy = next((policy for policy in endpoint.qos if isinstance(policy, Policy.Userdata)), None)
    pairs = (
        part.partition("=") for part in (policy.data.decode(errors="replace") if policy else "").split(";")
    )
    return next((value for name, _, value in pairs if name == key), "")


def _readers(ends: Endpoints, key: str) -> set[str]:
    """Ids of the readers that the writer has found; one without an id counts as ""."""
    found = (
        ends.writer.get_matched_subscription_data(handle)
        for handle in ends.writer.get_matched_subscriptions()
    )
    return {user_data(endpoint, key) for endpoint in found if endpoint is not None}


def matched(ends: Endpoints, key: str) -> bool:
    """Are both halves of one server found?"""
    try:
        found = (ends.reader.get_matched_publication_data(h) for h in ends.reader.get_matched_publications())
        return bool(
            _readers(ends, key) & {user_data(endpoint, key) for endpoint in found if endpoint is not None}
        )
    except DDSException:  # one of them left while we looked
        return False
