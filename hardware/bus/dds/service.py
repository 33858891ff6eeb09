"""Client of std_srvs/Trigger, and servers, over DDS, compatible with rmw_cyclonedds.

A message is the handle of the client (uint64), a sequence number (int64) and the payload. A client or server
has two endpoints, whose user data contain its id. The other side waits until it has discovered both.
"""

from __future__ import annotations

import struct as bits
import time
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsSubscription
from cyclonedds.core import DDSException, InstanceState, ReadCondition, SampleState, ViewState, WaitSet
from cyclonedds.idl import make_idl_struct, types
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware.bus.dds.descriptions import described
from hardware.bus.dds.types import PLAIN, endpoint_qos, raw_type
from hardware.bus.names import unknown_service
from hardware.bus.protocol import Answer
from robo_rl.core.errors import BusError

ANY = ViewState.Any | SampleState.Any | InstanceState.Any
HEAD = bits.Struct("<4sQq")  # CDR header, client, sequence number
DISCOVERY_S = 0.1  # time that a response waits for the discovery of the client's reader
TRIGGER = "std_srvs/srv/Trigger"
FOREIGN_SERVER = (
    "The service '{service}' belongs to a node whose RMW is not rmw_cyclonedds_cpp, such as Fast DDS; their "
    "services do not understand each other. Call it by `ros2 service call`, or start that node with "
    "RMW_IMPLEMENTATION=rmw_cyclonedds_cpp."
)
FOREIGN_CLIENT = (
    "A client of '{service}' uses another RMW than rmw_cyclonedds_cpp, such as Fast DDS, and gets no "
    "response. Use `robo-rl call {service} bus=dds`, or set RMW_IMPLEMENTATION=rmw_cyclonedds_cpp there."
)
_HEAD = {"client_guid": types.uint64, "sequence": types.int64}
_EMPTY = _HEAD | {"empty": types.uint8}
_FIELDS = {TRIGGER: (_EMPTY, _HEAD | {"success": bool, "message": str})}  # of request and response
_ids = count(1)


def encode_request(client: int, sequence: int) -> bytes:
    """CDR of a request. It has no fields, which is one byte in CDR."""
    return HEAD.pack(b"\0\1\0\0", client, sequence) + b"\0"


def encode_reply(client: int, sequence: int, answer: Answer) -> bytes:
    """CDR of a response: bool success, string message."""
    text = answer[1].encode() + b"\0"
    return HEAD.pack(b"\0\1\0\0", client, sequence) + bits.pack("<?3xI", answer[0], len(text)) + text


def trigger(callback: Callable[[], Answer]) -> Callable[[bytes], bytes]:
    """The `respond` of a Trigger server."""
    return lambda cdr: encode_reply(*decode_head(cdr), callback())


@cache
def service_carriers(ros_type: str) -> tuple[Any, Any]:
    """Classes that announce request and response of a service type and hold their CDR bytes.

    Of services other than Trigger, the fields are not announced, which takes a quarter of the time.
    rmw_cyclonedds matches types by name; a client without ROS needs these classes, too.
    """
    stored = [described(name, name) for name in _part_names(ros_type)]
    request, response = map(raw_type, stored if all(stored) else service_parts(ros_type))
    return request, response


def service_parts(ros_type: str) -> tuple[Any, Any]:
    """Request and response of a service type as IDL classes of cyclonedds."""
    fields = _FIELDS.get(ros_type, (_EMPTY, _EMPTY))
    request, response = (
        make_idl_struct(name.rsplit(".", 1)[1], name, each)
        for name, each in zip(_part_names(ros_type), fields, strict=True)
    )
    return request, response


def _part_names(ros_type: str) -> tuple[str, str]:
    """DDS names of request and response."""
    name = ros_type.replace("/", ".").replace(".srv.", ".srv.dds_.")
    return f"{name}_Request_", f"{name}_Response_"


def decode_head(cdr: bytes) -> tuple[int, int]:
    """(client, sequence) of a request or response. Raises BusError for too few bytes."""
    if len(cdr) < HEAD.size:
        raise BusError(f"A service message has {len(cdr)} bytes; expected at least {HEAD.size}.")
    order = "<" if cdr[1] & 1 else ">"
    client, sequence = bits.unpack_from(f"{order}Qq", cdr, 4)
    return client, sequence


def decode_reply(cdr: bytes) -> Answer:
    """(success, message) of a response. Raises BusError for invalid bytes."""
    order = "<" if cdr[1] & 1 else ">"
    try:
        success, length = bits.unpack_from(f"{order}?3xI", cdr, HEAD.size)
    except bits.error as error:
        raise BusError(f"The response of a service cannot be decoded: {error}.") from error
    return bool(success), cdr[28 : 28 + length].rstrip(b"\0").decode(errors="replace")


REQUEST, REPLY = service_carriers(TRIGGER)


class Endpoints:
    """Reader and writer of one client or server.

    requests, replies: the types; by default those of Trigger.
    """

    def __init__(
        self, participant: Any, service: str, serving: bool, requests: Any = REQUEST, replies: Any = REPLY
    ) -> None:
        key = participant.guid.bytes[:12] + next(_ids).to_bytes(4, "big")
        self.id = ".".join(f"{byte:x}" for byte in key)
        if key[0] < 16:
            self.id = " " + self.id  # rmw_cyclonedds pads the first byte
        role = "serviceid" if serving else "clientid"
        qos = endpoint_qos(True, False, 10, f"{role}={self.id};")
        request = Topic(participant, f"rq{service}Request", requests, Qos(PLAIN))
        reply = Topic(participant, f"rr{service}Reply", replies, Qos(PLAIN))
        self.writer: Any = DataWriter(participant, reply if serving else request, qos)
        self.reader: Any = DataReader(participant, request if serving else reply, qos)


class Client:
    """Client of one Trigger service."""

    def __init__(self, participant: Any, service: str) -> None:
        self._participant = participant
        self.service, self.ends, self._sequence = service, Endpoints(participant, service, serving=False), 0
        self._waitset: Any = WaitSet(participant)
        self._waitset.attach(ReadCondition(self.ends.reader, ANY))

    def call(self, timeout_s: float) -> Answer:
        """Wait for the server, send a request and wait for its response.

        Raises BusError when the server is not found or does not respond within `timeout_s`.
        """
        deadline_s = time.monotonic() + timeout_s
        while not matched(self.ends, "serviceid"):
            if time.monotonic() >= deadline_s:
                if "" in _reader_ids(self.ends, "serviceid"):
                    raise BusError(FOREIGN_SERVER.format(service=self.service))
                raise unknown_service(self.service, offered(self._participant), timeout_s)
            time.sleep(0.005)
        client = self.ends.writer.get_instance_handle() % 2**64
        self._sequence += 1
        self.ends.writer.write(REQUEST.of(encode_request(client, self._sequence)))
        while (left_s := deadline_s - time.monotonic()) > 0.0:
            self._waitset.wait(int(left_s * 1e9))
            for sample in self.ends.reader.take(16):
                if not sample.sample_info.valid_data or len(sample.cdr) < HEAD.size:
                    continue
                if decode_head(sample.cdr) == (client, self._sequence):
                    return decode_reply(sample.cdr)
        raise BusError(
            f"The service '{self.service}' did not respond within {timeout_s:g} s; see the output of its "
            "node."
        )

    def close(self) -> None:
        """Delete the endpoints."""
        self._participant = self._waitset = self.ends.writer = self.ends.reader = None


def offered(participant: Any) -> set[str]:
    """Names of the Trigger services whose servers are discovered."""
    seen = BuiltinDataReader(participant, BuiltinTopicDcpsSubscription).read(1000)
    servers = (end.topic_name for end in seen if end.type_name == REQUEST.__idl__.idl_transformed_typename)
    return {name.removeprefix("rq").removesuffix("Request") for name in servers if name.startswith("rq/")}


class Server:
    """Server of one service. Its methods never wait, so that they do not delay a control loop.

    respond: CDR of the response to the CDR of a request. requests, replies: the types; by default those of
    Trigger.
    """

    def __init__(
        self,
        participant: Any,
        service: str,
        respond: Callable[[bytes], bytes],
        requests: Any = REQUEST,
        replies: Any = REPLY,
    ) -> None:
        self.service, self._respond, self._carrier = service, respond, replies
        self.no_response = FOREIGN_CLIENT.format(service=service)
        self.ends = Endpoints(participant, service, True, requests, replies)
        # (id of the client, deadline [s], response)
        self._pending: list[tuple[str, float, bytes]] = []
        self._clients: frozenset[int] = frozenset()

    @property
    def has_pending(self) -> bool:
        """True while a response is not sent yet."""
        return bool(self._pending)

    def foreign_client(self) -> bool:
        """True when a client that is not of rmw_cyclonedds was discovered since the last call."""
        clients = frozenset(self.ends.reader.get_matched_publications())
        new, self._clients = clients - self._clients, clients
        found = (self.ends.reader.get_matched_publication_data(handle) for handle in new)
        return any(not user_data(each, "clientid") for each in found if each is not None)

    def on_request(self, cdr: bytes, info: Any) -> None:
        """Run the callback, and respond once the client's reader is discovered.

        An earlier response would be lost.
        """
        try:
            reply = self._respond(cdr)
        except BusError:
            return  # no client of this service sends such bytes
        sender = self.ends.reader.get_matched_publication_data(info.publication_handle)
        if sender is None:
            return  # the client is gone
        self._pending.append((user_data(sender, "clientid"), time.monotonic() + DISCOVERY_S, reply))
        self.send_ready()

    def send_ready(self) -> None:
        """Send the responses whose client is discovered or has no id, and those past their deadline."""
        if not self._pending:
            return
        found, now_s = _reader_ids(self.ends, "clientid") | {""}, time.monotonic()
        ready = [item for item in self._pending if item[0] in found or now_s >= item[1]]
        self._pending = [item for item in self._pending if item not in ready]
        for _, _, reply in ready:
            self.ends.writer.write(self._carrier.of(reply))


def user_data(endpoint: Any, key: str) -> str:
    """The value of `key=value;` in an endpoint's user data; empty without that key."""
    policy = next((policy for policy in endpoint.qos if isinstance(policy, Policy.Userdata)), None)
    pairs = (
        part.partition("=") for part in (policy.data.decode(errors="replace") if policy else "").split(";")
    )
    return next((value for name, _, value in pairs if name == key), "")


def _reader_ids(ends: Endpoints, key: str) -> set[str]:
    """Ids of the readers that are matched with the writer; "" for one without an id."""
    found = (
        ends.writer.get_matched_subscription_data(handle)
        for handle in ends.writer.get_matched_subscriptions()
    )
    return {user_data(endpoint, key) for endpoint in found if endpoint is not None}


def matched(ends: Endpoints, key: str) -> bool:
    """True when reader and writer of the same server are discovered. key: of the id in the user data."""
    try:
        found = (ends.reader.get_matched_publication_data(h) for h in ends.reader.get_matched_publications())
        writer_ids = {user_data(endpoint, key) for endpoint in found if endpoint is not None}
        return bool(_reader_ids(ends, key) & writer_ids - {""})  # without an id: of another RMW
    except DDSException:  # an endpoint was deleted meanwhile
        return False
