"""Interface between a node and its middleware.

A node creates publishers, subscriptions, timers and Trigger services in its constructor; `spin` then runs the
callbacks one at a time, in one thread. Names are relative ("joint_states"), so that each robot can have its
own namespace; "~/start" is below the name of the node. There are three implementations: in process with
virtual time, rclpy, and DDS without ROS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar, runtime_checkable

from hardware.messages import JointTrajectory, Message

M = TypeVar("M", bound=Message)

Answer = tuple[bool, str]  # response of a Trigger service: success, message


class Profile(Enum):
    """Quality of service, by the purpose of a topic."""

    COMMAND = "command"  # reliable, volatile, keep last 1: only the newest command counts
    STATE = "state"  # published reliable, subscribed best effort, keep last 1: matches every driver
    SENSOR = "sensor"  # best effort, keep last 5: a lost picture is better than a late one
    LATCHED = "latched"  # reliable, transient local, keep last 1: late subscribers get the last message


@runtime_checkable
class Bus(Protocol):
    """Connection of one node to the others. Not thread-safe: use it only in the thread that calls `spin`."""

    name: str  # name of the node
    namespace: str  # "", or such as "/left"
    discovery_s: float  # time within which publishers that exist already are found, on a usual network

    def now(self) -> float:
        """Local monotonic time [s], for ages and deadlines."""
        ...

    def stamp(self) -> float:
        """Time for the stamps of messages [s]: ROS time, or Unix time."""
        ...

    def publisher(self, topic: str, kind: type[M], profile: Profile) -> Callable[[M], None]:
        """A function that publishes one message. Raises BusError for an unusable name.

        The function raises BusError for a message of another type, and after `close`.
        """
        ...

    def subscribe(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """Call callback(message, received_s) for each message; received_s is on the clock of `now`.

        Messages that cannot be converted are dropped, with one warning. Raises BusError for an unusable name.
        """
        ...

    def watch_publishers(self, topic: str, callback: Callable[[tuple[str, ...]], None]) -> None:
        """Call callback(names) when a topic's publishers change; one name each, such as "/arm/action_head".

        This node's own publishers count, and so does a publisher that was killed, until its lease ends (10
        s). The call comes before the first message of a new publisher is delivered. With rclpy it comes at
        most 0.2 s after the discovery where this node does not subscribe to the topic, and always on Humble.
        Raises BusError for an unusable name.
        """
        ...

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` on absolute deadlines. Deadlines that pass during another callback are skipped.

        Raises BusError for a period that is not positive and finite.
        """
        ...

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        """Offer a std_srvs/Trigger service; `callback` returns its response."""
        ...

    def call(self, name: str, timeout_s: float) -> Answer:
        """Call a Trigger service and wait for its response. Raises BusError when none comes in time."""
        ...

    def spin(self, until: Callable[[], bool]) -> None:
        """Run callbacks until `until()` is true. It is checked after each callback, at least every 50 ms."""
        ...

    def close(self) -> None:
        """Leave the bus, after published messages are delivered or a second has passed."""
        ...


@runtime_checkable
class RawBus(Protocol):
    """Bus that also delivers unconverted messages, for the recorder.

    The bytes keep fields that the records of `hardware.messages` do not have. Of states and commands the last
    `hardware.bus.quality.RECORDED` are kept for it, so that a slow disk loses none.
    """

    def losses(self) -> int:
        """Number of losses so far that the bus knows of, on any topic, because this process was too slow.

        One for each datagram that the kernel discarded, which is a small message or a part of a large one,
        and one for each time that a queue of the recorder was full.
        """
        ...

    def subscribe_raw(
        self, topic: str, kind: type[Message], profile: Profile, callback: Callable[[bytes, float], None]
    ) -> None:
        """Call callback(cdr, received_s) for each message: CDR of either byte order, with its 4-byte header.

        There is no warning when such a topic is silent.
        """
        ...


@runtime_checkable
class RemoteParameterBus(Protocol):
    """Bus on which the parameters of other nodes can be read."""

    def remote_parameters(self, node: str, names: Sequence[str], timeout_s: float) -> dict[str, Any]:
        """Values of those of these parameters that the node has.

        Raises BusError when it does not answer in time. No other callback of this node runs meanwhile.
        """
        ...


@runtime_checkable
class TrajectoryAction(Protocol):
    """Client of a FollowJointTrajectory action."""

    @property
    def fault(self) -> str:
        """Why goals are not followed, without a final full stop; empty while they are."""
        ...

    def send(self, trajectory: JointTrajectory) -> None:
        """Send a goal, which replaces the one before."""
        ...

    def reset(self) -> None:
        """Forget an earlier fault."""
        ...


@runtime_checkable
class ActionBus(Protocol):
    """Bus that speaks the actions of ROS."""

    def trajectory_action(self, name: str) -> TrajectoryAction:
        """A client of the control_msgs/FollowJointTrajectory action `name`."""
        ...


@runtime_checkable
class ControllerBus(Protocol):
    """Bus that tells the states of the controllers of a controller manager."""

    def watch_controllers(self, manager: str, callback: Callable[[dict[str, str]], None]) -> None:
        """Call callback({controller: lifecycle state}) when the manager is found, and on changes.

        A bus without its message type, or a manager that does not publish it, never calls.
        """
        ...


@runtime_checkable
class CompleteBus(Protocol):
    """Bus without bytes that loses no message to the recorder."""

    def subscribe_all(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """As `Bus.subscribe`, with every message, whatever the depth of the profile."""
        ...


@runtime_checkable
class QueueBus(Protocol):
    """Bus that keeps every message of a topic until it is handled, without telling who sent it."""

    def subscribe_queue(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """See `Bus.subscribe`. A message does not replace one that waits."""
        ...


@runtime_checkable
class SenderBus(Protocol):
    """Bus that tells which publisher sent a message."""

    def subscribe_senders(
        self,
        topic: str,
        kind: type[M],
        profile: Profile,
        on_message: Callable[[M, float, int], None],
        on_senders: Callable[[frozenset[int]], None],
    ) -> None:
        """Call on_message(message, received_s, sender) for each message, and on_senders(senders) on changes.

        A sender is a number that its publisher keeps while it exists. on_senders is called at once, and then
        before the first message of a new publisher. A message does not replace one that waits.
        """
        ...


@runtime_checkable
class LoggingBus(Protocol):
    """Bus with a log of its own, such as /rosout, which other programs read."""

    def log(self, sentence: str, warning: bool = False) -> bool:
        """Log a line; False once the bus is closed."""
        ...
