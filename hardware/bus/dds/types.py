"""Domains, types and quality of service of rmw_cyclonedds, by the Python binding of CycloneDDS.

The serializer of the binding converts a message element by element, which takes tens of milliseconds for a
picture. Its classes therefore only announce the type here, and hold bytes made by `hardware.bus.dds.cdr`.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from cyclonedds._clayer import ddspy_take, ddspy_write  # called by the classes' own take and write
from cyclonedds.core import DDSException, InstanceState, SampleState, ViewState
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import make_idl_struct, types
from cyclonedds.qos import Policy, Qos
from cyclonedds.util import duration

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.dds.descriptions import described
from hardware.bus.dds.loopback import confine, used_ports
from hardware.bus.quality import Quality, RequestedQos
from robo_rl.core.errors import BusError

BLOCK_MS = 100  # largest time that a writer waits for a slow reader, so that logging cannot block control
MAX_PROCESSES = 32  # nodes per machine that discover each other without multicast, as in rmw_cyclonedds
PLAIN = Policy.DataRepresentation(use_cdrv0_representation=True)
LOOPBACK = "lo"
_UNICAST = f"""<Discovery><ParticipantIndex>auto</ParticipantIndex>
<MaxAutoParticipantIndex>{MAX_PROCESSES}</MaxAutoParticipantIndex>
<Peers><Peer address="127.0.0.1"/></Peers></Discovery>"""
_IDL = {"bool": bool, "string": str, "byte": types.uint8, "char": types.uint8, "octet": types.uint8}

_ANY = int(SampleState.Any | ViewState.Any | InstanceState.Any)

# Id -> (domain, interface, number of nodes of this process that use it).
_domains: dict[int, tuple[Domain, str, int]] = {}
_lock = threading.Lock()


def config(interface: str) -> str:
    """CycloneDDS configuration (XML) for the loopback without multicast, or for another interface as in ROS.

    Raises BusError for a text that cannot be the name of an interface.
    """
    if interface == LOOPBACK:
        # Large datagrams: a picture in 15 of them instead of 63 needs less CPU time on both sides.
        general = "<MaxMessageSize>65500B</MaxMessageSize><FragmentSize>62000B</FragmentSize>"
        general += '<Interfaces><NetworkInterface name="lo" multicast="false"/></Interfaces>'
        general += "<AllowMulticast>false</AllowMulticast>"
        return f"<CycloneDDS><Domain><General>{general}</General>{_UNICAST}</Domain></CycloneDDS>"
    if not interface.replace("-", "").replace(".", "").replace("_", "").isalnum():
        raise BusError(
            f"{interface!r} is no network interface; expected a name listed by `ip addr`, such as eth0."
        )
    general = f'<Interfaces><NetworkInterface name="{interface}"/></Interfaces>'
    return f"<CycloneDDS><Domain><General>{general}</General></Domain></CycloneDDS>"


def join_domain(domain: int, interface: str) -> None:
    """Open the domain in this process, or share it with the other nodes of this process.

    On the loopback its sockets receive from this machine alone. Raises BusError when the domain is open on
    another interface, when DDS cannot open it, or when its sockets cannot be bound to the loopback.
    """
    with _lock:
        if domain in _domains:
            opened, known, users = _domains[domain]
            if known != interface:
                raise BusError(f"Domain {domain} is already open on interface '{known}', not '{interface}'.")
            _domains[domain] = (opened, known, users + 1)
            return
        others = used_ports(domain) if interface == LOOPBACK else frozenset()
        try:
            made = Domain(domain, config(interface))
        except DDSException as error:
            raise _refused(domain, interface, error) from error
        if interface == LOOPBACK:
            confine(domain, others)
        _domains[domain] = (made, interface, 1)


def join(domain: int, interface: str) -> DomainParticipant:
    """A participant in the domain.

    Call `leave_domain` after it is deleted. Raises BusError as `join_domain`.
    """
    join_domain(domain, interface)
    try:
        return DomainParticipant(domain, Qos(Policy.Userdata(b"enclave=/;")))
    except DDSException as error:
        leave_domain(domain)
        raise _refused(domain, interface, error) from error


def _refused(domain: int, interface: str, error: DDSException) -> BusError:
    advice = "Check that the interface is up and that its name is as in `ip addr`."
    if interface == LOOPBACK:
        advice = f"A machine can have {MAX_PROCESSES} nodes per domain; set another ROS_DOMAIN_ID for more."
    return BusError(f"DDS cannot join domain {domain} on interface '{interface}' ({error}). {advice}")


def leave_domain(domain: int) -> None:
    """Release the domain; the last node of this process closes it."""
    with _lock:
        opened, interface, users = _domains.pop(domain)
        if users > 1:
            _domains[domain] = (opened, interface, users - 1)


def dds_type_name(ros_type: str) -> str:
    """DDS name of a ROS type: sensor_msgs/msg/Image -> sensor_msgs.msg.dds_.Image_.

    The binding replaces the dots with `::`.
    """
    package, kind, name = ros_type.split("/")
    return f"{package}.{kind}.dds_.{name}_"


def carrier(ros: RosTypes, ros_type: str) -> Any:
    """A class that announces the ROS type and holds its CDR bytes as `.cdr`."""
    if ros_type not in _carriers:
        stored = described(ros.type_hash(ros_type), dds_type_name(ros_type))
        _carriers[ros_type] = raw_type(stored or struct(ros, ros_type))
    return _carriers[ros_type]


_carriers: dict[str, Any] = {}


def raw_type(announced: Any) -> Any:
    """The class `announced`, changed so that its samples hold CDR bytes instead of fields."""

    def of(cls: type[Any], /, data: bytes, **_: Any) -> Any:
        sample = object.__new__(cls)
        sample.cdr = data
        return sample

    announced.serialize = lambda self, **_: self.cdr
    announced.deserialize = announced.deserialize_key = announced.of = classmethod(of)
    return announced


def write(writer: Any, cdr: bytes) -> None:
    """Write CDR bytes. Raises DDSException.

    It skips the checks and the serializer of `writer.write`, which take longer than sending.
    """
    result = ddspy_write(writer._ref, cdr + bytes(-len(cdr) % 4))
    if result < 0:
        raise DDSException(result, f"Occurred while writing {len(cdr)} bytes.")


def take(reader: Any, most: int) -> list[tuple[bytes, Any]]:
    """(CDR, SampleInfo of cyclonedds) of at most `most` samples, without waiting. Raises DDSException."""
    found = ddspy_take(reader._ref, _ANY, most)
    if isinstance(found, int):
        raise DDSException(found, "Occurred while taking samples.")
    samples: list[tuple[bytes, Any]] = found
    return samples


def struct(ros: RosTypes, ros_type: str, announced: str = "") -> Any:
    """The ROS type as an IDL class of cyclonedds.

    announced: announce it with the name of this type instead.
    """
    fields = {name: _field(ros, described) for name, described in ros.store.fielddefs[ros_type][1]}
    name = ros_type.rsplit("/", 1)[1]
    return make_idl_struct(f"{name}_", dds_type_name(announced or ros_type), fields)


@cache
def _nested(ros: RosTypes, ros_type: str) -> Any:
    """The type of a field, made once: a header is part of most messages."""
    return struct(ros, ros_type)


def _field(ros: RosTypes, described: tuple[Any, Any]) -> Any:
    kind, of = described[0].name, described[1]
    if kind == "BASE":
        return _IDL.get(of[0]) or getattr(types, of[0])
    if kind == "NAME":
        return _nested(ros, of)
    inner = _field(ros, of[0])
    return types.array[inner, of[1]] if kind == "ARRAY" else types.sequence[inner]


def endpoint_qos(reliable: bool, latched: bool, depth: int, user_data: str = "") -> Qos:
    """Quality of service of a reader or writer, with the settings of rmw_cyclonedds."""
    history = Policy.History.KeepLast(depth)
    policies = [
        Policy.Reliability.Reliable(duration(milliseconds=BLOCK_MS))
        if reliable
        else Policy.Reliability.BestEffort,
        Policy.Durability.TransientLocal if latched else Policy.Durability.Volatile,
        history,
        Policy.WriterDataLifecycle(autodispose=False),
        PLAIN,
    ]
    if latched:
        policies.append(Policy.DurabilityService(0, history, -1, -1, -1))
    if user_data:
        policies.append(Policy.Userdata(user_data.encode()))
    return Qos(*policies)


def writer_qos(quality: Quality, type_hash: str) -> Qos:
    """Quality of service that a publisher offers."""
    return endpoint_qos(quality.offers_reliable, quality.latched, quality.depth, f"typehash={type_hash};")


def reader_qos(requested: RequestedQos, quality: Quality, type_hash: str) -> Qos:
    """Quality of service that one subscription of a profile asks for."""
    return endpoint_qos(requested.reliable, requested.latched, quality.depth, f"typehash={type_hash};")
