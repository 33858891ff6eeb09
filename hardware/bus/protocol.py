"""The bus: what a node needs of its middleware, and nothing else.

A node asks for publishers, subscriptions, timers and Trigger services when it is made; `spin` then calls it
back, one callback at a time, in one thread. Names are relative ("joint_states"), so that a namespace gives
each robot its own; "~/start" is a name below the node's own. Three adapters: in process with virtual time,
rclpy, DDS without ROS.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeVar, runtime_checkable

from hardware.messages import Message

M = TypeVar("M", bound=Message)

Answer = tuple[bool, str]  # what a Trigger service returns: success, and a sentence


class Profile(Enum):
    """Quality of service, by what a topic is for."""

    COMMAND = "command"  # reliable, volatile, keep last 1: only the newest command counts
    STATE = "state"  # published reliable, subscribed best effort, keep last 1: matches every driver
    SENSOR = "sensor"  # best effort, keep last 5: a lost picture is better than a late one
    LATCHED = "latched"  # reliable, transient local, keep last 1: whoever comes later still hears it


@runtime_checkable
class Bus(Protocol):
    """One node's door to the others. Not thread-safe: callbacks and calls belong to the thread that spins."""

    name: str  # the node's

    def now(self) -> float:
        """Local monotonic seconds: what ages and deadlines are judged by."""
        ...

    def stamp(self) -> float:
        """Seconds of the clock that stamps messages: ROS time, or Unix time."""
        ...

    def publisher(self, topic: str, kind: type[M], profile: Profile) -> Callable[[M], None]:
        """A function that publishes. Raises BusError where the topic's name cannot be used."""
        ...

    def subscribe(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """callback(message, received_s) for each message, received_s on the clock of `now`."""
        ...

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        """Call back on absolute deadlines; those that passed while another callback ran are skipped, never
        made up.
        """
        ...

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        """Offer a std_srvs/Trigger service."""
        ...

    def call(self, name: str, timeout_s: float) -> Answer:
        """Call a Trigger service and wait. Raises BusError when nobody answers in time."""
        ...

    def spin(self, until: Callable[[], bool]) -> None:
        """Call back until `until()` is true, which is asked after each callback and at least every 50 ms."""
        ...

    def close(self) -> None:
        """Leave. What was published before is still delivered."""
        ...


@runtime_checkable
class RawBus(Protocol):
    """What a recorder asks for besides: messages as they came, with what our records have no field for."""

    def subscribe_raw(
        self, topic: str, kind: type[Message], profile: Profile, callback: Callable[[bytes, float], None]
    ) -> None:
        """callback(cdr, received_s): little- or big-endian CDR with its header of four bytes. Silence is not
        said.
        """
        ...
