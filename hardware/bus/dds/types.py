"""What rmw_cyclonedds puts on the wire, said in the Python binding of CycloneDDS: domain, types, quality of
service.

cyclonedds' own (de)serializer goes through a message element by element: tens of milliseconds for a picture.
So its classes only announce the type here, and carry bytes that `hardware.bus.dds.cdr` makes.
"""

from __future__ import annotations

import threading
from typing import Any

from cyclonedds._clayer import ddspy_take, ddspy_write  # what the classes' own take and write call
from cyclonedds.core import DDSException, InstanceState, SampleState, ViewState
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import make_idl_struct, types
from cyclonedds.qos import Policy, Qos
from cyclonedds.util import duration

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.quality import Quality
from robo_rl.core.errors import BusError

BLOCK_MS = (
    100  # a writer waits no longer than this for a slow reader: a control loop may not hang on its logger
)
MAX_PROCESSES = 32  # nodes per machine that find each other without multicast, as in rmw_cyclonedds
PLAIN = Policy.DataRepresentation(use_cdrv0_representation=True)
LOOPBACK = "lo"
_UNICAST = f"""<Discovery><ParticipantIndex>auto</ParticipantIndex>
<MaxAutoParticipantIndex>{MAX_PROCESSES}</MaxAutoParticipantIndex>
<Peers><Peer address="127.0.0.1"/></Peers></Discovery>"""
_IDL = {"bool": bool, "string": str, "byte": types.uint8, "char": types.uint8, "octet": types.uint8}

_ANY = int(SampleState.Any | ViewState.Any | InstanceState.Any)

_domains: dict[
    int, tuple[Domain, str, int]
] = {}  # id -> (domain, interface, how many nodes of this process use it)
_lock = threading.Lock()


def config(interface: str) -> str:
    """CycloneDDS' configuration: the loopback alone, without multicast; or another interface, as ROS does."""
    if interface == LOOPBACK:
        # Whole datagrams: a picture in 15 of them instead of 63 takes less of both processors.
        general = "<MaxMessageSize>65500B</MaxMessageSize><FragmentSize>62000B</FragmentSize>"
        general += '<Interfaces><NetworkInterface name="lo" multicast="false"/></Interfaces>'
        general += "<AllowMulticast>false</AllowMulticast>"
        return f"<CycloneDDS><Domain><General>{general}</General>{_UNICAST}</Domain></CycloneDDS>"
    if not interface.replace("-", "").replace(".", "").replace("_", "").isalnum():
        raise BusError(
            f"{interface!r} is no network interface; expected a name that `ip addr` lists, e.g. eth0."
        )
    general = f'<Interfaces><NetworkInterface name="{interface}"/></Interfaces>'
    return f"<CycloneDDS><Domain><General>{general}</General></Domain></CycloneDDS>"


def join_domain(domain: int, interface: str) -> None:
    """Open the domain in this process, or share it with this process' other nodes. Raises BusError."""
    with _lock:
        if domain in _domains:
            opened, known, users = _domains[domain]
            if known != interface:
                raise BusError(f"Domain {domain} is already open on interface '{known}', not '{interface}'.")
            _domains[domain] = (opened, known, users + 1)
            return
        try:
            _domains[domain] = (Domain(domain, config(interface)), interface, 1)
        except DDSException as error:
            raise _refused(domain, interface, error) from error


def join(domain: int, interface: str) -> DomainParticipant:
    """A participant in the domain, which is to be followed by `leave_domain`. Raises BusError."""
    join_domain(domain, interface)
    try:
        return DomainParticipant(domain, Qos(Policy.Userdata(b"enclave=/;")))
    except DDSException as error:
        leave_domain(domain)
        raise _refused(domain, interface, error) from error


def _refused(domain: int, interface: str, error: DDSException) -> BusError:
    why = "is it up, and as `ip addr` names it?"
    if interface == LOOPBACK:
        why = f"at most {MAX_PROCESSES} nodes find each other on one machine, and another ROS_DOMAIN_ID has its own."
    return BusError(f"DDS cannot join domain {domain} on interface '{interface}' ({error}): {why}")


def leave_domain(domain: int) -> None:
    """The last node of this process to leave closes it."""
    with _lock:
        opened, interface, users = _domains.pop(domain)
        if users > 1:
            _domains[domain] = (opened, interface, users - 1)


def dds_type_name(ros_type: str) -> str:
    """sensor_msgs/msg/Image -> sensor_msgs.msg.dds_.Image_, which the binding writes with :: on the wire."""
    package, kind, name = ros_type.split("/")
    return f"{package}.{kind}.dds_.{name}_"


def carrier(ros: RosTypes, ros_type: str) -> Any:
    """A class that announces the ROS type and carries its CDR bytes as `.cdr`."""
    if ros_type not in _carriers:
        _carriers[ros_type] = carry(struct(ros, ros_type))
    return _carriers[ros_type]


_carriers: dict[str, Any] = {}


def carry(announced: Any) -> Any:
    """Let the class move bytes instead of fields."""

    def of(cls: type[Any], /, data: bytes, **_: Any) -> Any:
        sample = object.__new__(cls)
        sample.cdr = data
        return sample

    announced.serialize = lambda self, **_: self.cdr
    announced.deserialize = announced.deserialize_key = announced.of = classmethod(of)
    return announced


def write(writer: Any, cdr: bytes) -> None:
    """The bytes on the wire, without the checks and the serializer of `writer.write`: on a control path they
    cost more than the sending. Raises DDSException.
    """
    result = ddspy_write(writer._ref, cdr + bytes(-len(cdr) % 4))
    if result < 0:
        raise DDSException(result, f"Occurred while writing {len(cdr)} bytes.")


def take(reader: Any, most: int) -> list[tuple[bytes, Any]]:
    """(CDR, cyclonedds' SampleInfo) of at most so many samples, without waiting. Raises DDSException."""
    found = ddspy_take(reader._ref, _ANY, most)
    if isinstance(found, int):
        raise DDSException(found, "Occurred while taking what came.")
    samples: list[tuple[bytes, Any]] = found
    return samples


def struct(ros: RosTypes, ros_type: str, announced: str = "") -> Any:
    """The type in cyclonedds' terms; as it is, its own serializer works on it. announced: as another type's
    name.
    """
    fields = {name: _field(ros, described) for name, described in ros.store.fielddefs[ros_type][1]}
    name = ros_type.rsplit("/", 1)[1]
    return make_idl_struct(f"{name}_", dds_type_name(announced or ros_type), fields)


def _field(ros: RosTypes, described: tuple[Any, Any]) -> Any:
    kind, of = described[0].name, described[1]
    if kind == "BASE":
        return _IDL.get(of[0]) or getattr(types, of[0])
    if kind == "NAME":
        return struct(ros, of)
    inner = _field(ros, of[0])
    return types.array[inner, of[1]] if kind == "ARRAY" else types.sequence[inner]


def endpoint_qos(reliable: bool, latched: bool, depth: int, user_data: str = "") -> Qos:
    """Quality of service of a reader or writer, as rmw_cyclonedds sets it."""
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


def profile_qos(quality: Quality, publishing: bool, type_hash: str) -> Qos:
    """Quality of service of one side of a topic."""
    reliable = quality.offers_reliable if publishing else quality.asks_reliable
    return endpoint_qos(reliable, quality.latched, quality.depth, f"typehash={type_hash};")
