"""The bus on rclpy: one node, one single-threaded executor, in a context of its own.

Python keeps its own handling of Ctrl-C: rclpy's would shut the context down before the node can publish its
stop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hardware.bus.names import namespace_of, nobody_offers, node_name, resolve
from hardware.bus.protocol import Answer, M, Profile
from hardware.bus.quality import QUALITY
from hardware.bus.ros_messages import message_class, new
from hardware.bus.shield import shielded
from hardware.bus.watch import TopicWatch, watch
from hardware.bus.wire import WIRE, check_kind, pack, unpack
from robo_rl.core.errors import BusError, MissingDependencyError

IDLE_S = 0.05  # the longest wait between two looks at `until`
LOOK_S = 1.0  # how often silent topics are looked for
GONE_S = 1.0  # how long `close` waits for subscribers to have what was published
TRIGGER = "std_srvs/srv/Trigger"


class RosBus:
    """One ROS 2 node. Remappings and `--ros-args` of the command line apply, and may change its name."""

    def __init__(
        self,
        name: str,
        namespace: str = "",
        domain: int | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        node_name(name), namespace_of(namespace)
        try:
            import rclpy
            from rclpy.clock import Clock, ClockType
            from rclpy.context import Context
            from rclpy.executors import SingleThreadedExecutor
            from rclpy.node import Node
            from rclpy.signals import SignalHandlerOptions
        except ImportError as error:
            raise MissingDependencyError(why_no_rclpy(error)) from error
        self._context = Context()
        rclpy.init(context=self._context, domain_id=domain, signal_handler_options=SignalHandlerOptions.NO)
        self._rclpy, self._node = rclpy, Node(name, namespace=namespace or None, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._steady = Clock(
            clock_type=ClockType.STEADY_TIME
        )  # a timer may not stand still with a simulator's time
        self.name, self.namespace = self._node.get_name(), self._node.get_namespace().rstrip("/")
        self._warn = warn or self._node.get_logger().warning
        self._publishers: list[Any] = []
        self._watches: list[TopicWatch] = []
        self._caller: Any = None
        self._looked_s, self._closed = self.now(), False

    def now(self) -> float:
        return time.monotonic()

    def stamp(self) -> float:
        return float(self._node.get_clock().now().nanoseconds) / 1e9

    def publisher(self, topic: str, kind: type[M], profile: Profile) -> Callable[[M], None]:
        """See `Bus.publisher`. Mismatched qualities are logged by rclpy itself."""
        full = resolve(topic, self.namespace, self.name)
        made = self._node.create_publisher(message_class(WIRE[kind].ros_type), topic, quality(profile, True))
        self._publishers.append((made, profile))

        def publish(message: M) -> None:
            if self._closed:
                raise BusError(
                    f"Node '{self.name}' has left the bus and cannot publish on '{full}' any more."
                )
            check_kind(full, kind, message)
            ros_message = pack(message, _checked)
            try:
                made.publish(ros_message)
            except Exception as error:  # rclpy raises RCLError, made in C, when the context is gone
                raise BusError(f"Publishing on '{full}' failed: {error}") from error

        return publish

    def subscribe(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """See `Bus.subscribe`. What cannot be read is dropped, with a sentence the first time."""
        complained = False

        def take(message: Any, received_s: float) -> None:
            nonlocal complained
            try:
                record = unpack(kind, message)
            except BusError as error:
                if not complained:
                    full = self._node.resolve_topic_name(topic)
                    self._warn(f"A message on '{full}' is dropped, and others like it: {error}")
                complained = True
            else:
                callback(record, received_s)

        self._subscribe(topic, kind, profile, take, raw=False)

    def subscribe_raw(
        self, topic: str, kind: type[Any], profile: Profile, callback: Callable[[bytes, float], None]
    ) -> None:
        """See `RawBus.subscribe_raw`."""
        self._subscribe(topic, kind, profile, callback, raw=True)

    def _subscribe(
        self, topic: str, kind: type[Any], profile: Profile, take: Callable[[Any, float], None], raw: bool
    ) -> None:
        resolve(topic, self.namespace, self.name)
        full = self._node.resolve_topic_name(topic)  # after remapping
        watched = None if raw else watch(full, kind, profile, self.now())

        def receive(message: Any, info: Any) -> None:
            received_s = self._received_s(info)
            if watched is not None and (said := watched.hear(received_s)) is not None:
                self._warn(said)
            take(message, received_s)

        ros_type = message_class(WIRE[kind].ros_type)
        self._node.create_subscription(ros_type, topic, receive, quality(profile, False), raw=raw)
        if watched is not None:
            self._watches.append(watched)

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        if not 0.0 < period_s < float("inf"):
            raise BusError(f"A timer needs a period above 0 s, found {period_s}.")
        self._node.create_timer(period_s, callback, clock=self._steady)

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        """See `Bus.service`."""
        resolve(name, self.namespace, self.name)

        def answer(_: Any, response: Any) -> Any:
            response.success, response.message = callback()
            return response

        self._node.create_service(message_class(TRIGGER), name, answer)

    def call(self, name: str, timeout_s: float) -> Answer:
        """See `Bus.call`. No other callback of this node runs meanwhile.

        An executor cannot be spun from its own callback, so calls have a hidden node and an executor of their
        own.
        """
        full = resolve(name, self.namespace, self.name)
        if self._caller is None:
            from rclpy.executors import SingleThreadedExecutor
            from rclpy.node import Node

            node = Node(
                f"_{self.name}_caller",
                context=self._context,
                use_global_arguments=False,  # `-r __node:=name` would rename this one, too
                enable_rosout=False,
                start_parameter_services=False,
            )
            executor = SingleThreadedExecutor(context=self._context)
            executor.add_node(node)
            self._caller = (node, executor, {})
        node, executor, clients = self._caller
        if full not in clients:
            clients[full] = node.create_client(message_class(TRIGGER), full)
        deadline_s = self.now() + timeout_s
        if not clients[full].wait_for_service(timeout_sec=timeout_s):
            seen = node.get_service_names_and_types()
            raise nobody_offers(full, (name for name, types in seen if TRIGGER in types), timeout_s)
        future = clients[full].call_async(message_class(TRIGGER).Request())
        executor.spin_until_future_complete(future, timeout_sec=max(0.0, deadline_s - self.now()))
        if not future.done():
            clients[full].remove_pending_request(future)
            raise BusError(
                f"The service '{full}' did not answer within {timeout_s:g} s; see what its node prints."
            )
        response = future.result()
        return bool(response.success), str(response.message)

    def spin(self, until: Callable[[], bool]) -> None:
        """See `Bus.spin`. Raises BusError when someone else shuts ROS down in this process."""
        from rclpy.executors import ExternalShutdownException

        while not until():
            try:
                self._executor.spin_once(timeout_sec=IDLE_S)
            except ExternalShutdownException as error:
                raise BusError(f"ROS was shut down under node '{self.name}'.") from error
            if (now_s := self.now()) - self._looked_s >= LOOK_S:
                self._looked_s = now_s
                for one in self._watches:
                    if (said := one.look(now_s, self._node.count_publishers(one.topic))) is not None:
                        self._warn(said)

    def close(self) -> None:
        """Leave, after subscribers have what was published, or a second has passed. Ctrl-C does not cut it
        short.
        """
        if self._closed:
            return
        self._closed = True
        from rclpy.duration import Duration

        with shielded():
            deadline_s = self.now() + GONE_S
            if self._context.ok():
                for made, profile in self._publishers:
                    if not QUALITY[profile].offers_reliable:
                        continue
                    with suppress(RuntimeError):  # RCLError: not every middleware can tell
                        made.wait_for_all_acked(Duration(seconds=max(0.0, deadline_s - self.now())))
            for node, executor in [
                *([self._caller[:2]] if self._caller else []),
                (self._node, self._executor),
            ]:
                executor.shutdown(timeout_sec=GONE_S)
                node.destroy_node()
            self._rclpy.try_shutdown(context=self._context)

    def _received_s(self, info: Any) -> float:
        """Local monotonic time of arrival; that of the callback where the middleware does not tell it
        (CycloneDDS).
        """
        now_s, at_ns = self.now(), info["received_timestamp"]
        return now_s - max(0.0, time.time() - at_ns / 1e9) if at_ns > 0 else now_s


def quality(profile: Profile, publishing: bool) -> Any:
    """The profile as rclpy's QoSProfile."""
    from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

    row = QUALITY[profile]
    reliable = row.offers_reliable if publishing else row.asks_reliable
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=row.depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if row.latched else DurabilityPolicy.VOLATILE,
    )


def why_no_rclpy(error: ImportError) -> str:
    """What is missing, and the command that mends it."""
    distribution = os.environ.get("ROS_DISTRO")
    if distribution:
        return (
            f"ROS 2 {distribution} is sourced, but this Python cannot import rclpy ({error}): rclpy is built "
            "for the distribution's own Python. Use that one, or talk to ROS without it: bus=dds, after "
            "pip install 'robo-rl[dds]'"
        )
    return (
        "rclpy comes with ROS 2 and no ROS 2 is sourced here. Run: source /opt/ros/jazzy/setup.bash - or do "
        "without ROS: bus=dds, after pip install 'robo-rl[dds]'"
    )


def _checked(ros_type: str, **fields: Any) -> Any:
    """`new`, with the setters' complaints about values as a sentence."""
    try:
        return new(ros_type, **fields)
    except (AssertionError, OverflowError, ValueError, TypeError) as error:
        raise BusError(f"A {ros_type} cannot hold {sorted(fields)}: {error}") from error
