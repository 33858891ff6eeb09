"""The bus on rclpy: one node and one single-threaded executor, in a context of its own.

rclpy's signal handlers are not installed, because they would shut the context down before the node can
publish its stop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any

from hardware.bus.clocks import ClockOffset
from hardware.bus.names import namespace_of, node_name, resolve, unknown_service
from hardware.bus.protocol import Answer, M, Profile
from hardware.bus.quality import QUALITY, Ask, Quality, Repeats
from hardware.bus.ros_messages import message_class, new
from hardware.bus.ros_remote import RosTrajectoryAction, read_parameters
from hardware.bus.shield import shielded
from hardware.bus.watch import TopicWatch, watch
from hardware.bus.wire import WIRE, check_kind, pack, unpack
from robo_rl.core.errors import BusError, MissingDependencyError

IDLE_S = 0.05  # largest time between two checks of `until`
CHECK_S = 1.0  # period of the check for silent topics
PUBLISHERS_S = 0.2  # period of the look at the publishers of a watched topic
CLOSE_S = 1.0  # time that `close` waits for published messages to be delivered
TRIGGER = "std_srvs/srv/Trigger"


class RosBus:
    """One ROS 2 node; see `hardware.bus.protocol.Bus`.

    Remappings and other `--ros-args` of the command line apply and may change its name. warn: called with
    warnings; without it they go to the logger of the node. Raises MissingDependencyError without rclpy.
    """

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
        # Steady time, so that timers run on when simulated time is paused.
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.name, self.namespace = self._node.get_name(), self._node.get_namespace().rstrip("/")
        self._warn = warn or self._node.get_logger().warning
        self._publishers: list[Any] = []
        self._watches: list[TopicWatch] = []
        self._caller: Any = None
        self._actions: list[RosTrajectoryAction] = []
        self._checked_s, self._closed = self.now(), False
        self._unix = ClockOffset(time.time)

    def now(self) -> float:
        return time.monotonic()

    def stamp(self) -> float:
        return float(self._node.get_clock().now().nanoseconds) / 1e9

    def log(self, sentence: str, warning: bool = False) -> bool:
        """See `LoggingBus.log`: the terminal and /rosout."""
        if self._closed or not self._context.ok():
            return False
        logger = self._node.get_logger()
        # On two lines: rclpy refuses two severities from one.
        if warning:
            logger.warning(sentence)
        else:
            logger.info(sentence)
        return True

    def publisher(self, topic: str, kind: type[M], profile: Profile) -> Callable[[M], None]:
        """See `Bus.publisher`. rclpy itself logs mismatched qualities of service."""
        full = resolve(topic, self.namespace, self.name)
        made = self._node.create_publisher(
            message_class(WIRE[kind].ros_type), topic, offered(QUALITY[profile])
        )
        self._publishers.append((made, profile))

        def publish(message: M) -> None:
            if self._closed:
                raise BusError(f"Node '{self.name}' is closed and cannot publish on '{full}'.")
            check_kind(full, kind, message)
            ros_message = pack(message, _checked)
            try:
                made.publish(ros_message)
            except Exception as error:  # rclpy raises RCLError, a class made in C, when the context is gone
                raise BusError(f"Publishing on '{full}' failed: {error}") from error

        return publish

    def subscribe(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """See `Bus.subscribe`."""
        warned = False

        def on_message(message: Any, received_s: float) -> None:
            nonlocal warned
            try:
                record = unpack(kind, message)
            except BusError as error:
                if not warned:
                    full = self._node.resolve_topic_name(topic)
                    self._warn(f"A message on '{full}' is dropped, and others like it: {error}")
                warned = True
            else:
                callback(record, received_s)

        self._subscribe(topic, kind, profile, on_message, raw=False)

    def subscribe_raw(
        self, topic: str, kind: type[Any], profile: Profile, callback: Callable[[bytes, float], None]
    ) -> None:
        """See `RawBus.subscribe_raw`."""
        self._subscribe(topic, kind, profile, callback, raw=True)

    def _subscribe(
        self,
        topic: str,
        kind: type[Any],
        profile: Profile,
        on_message: Callable[[Any, float], None],
        raw: bool,
    ) -> None:
        resolve(topic, self.namespace, self.name)
        full = self._node.resolve_topic_name(topic)  # after remapping
        watched = None if raw else watch(full, kind, profile, self.now())

        quality, repeats = QUALITY[profile], Repeats()
        quality = quality.recorded() if raw else quality
        asked = quality.asked()

        def receive(message: Any, info: Any) -> None:
            if len(asked) > 1 and not repeats.fresh((info["source_timestamp"], _content(message))):
                return
            received_s = self._received_s(info)
            if watched is not None and (notice := watched.on_message(received_s)) is not None:
                self._warn(notice)
            on_message(message, received_s)

        ros_type = message_class(WIRE[kind].ros_type)
        for ask in asked:
            # The first one matches every publisher, so only its mismatches are reported.
            events = {} if ask is asked[0] else {"event_callbacks": _silent()}
            self._node.create_subscription(
                ros_type, topic, receive, qos_profile(ask, quality.depth), raw=raw, **events
            )
        if watched is not None:
            self._watches.append(watched)

    def watch_publishers(self, topic: str, callback: Callable[[tuple[str, ...]], None]) -> None:
        """See `Bus.watch_publishers`."""
        resolve(topic, self.namespace, self.name)
        full = self._node.resolve_topic_name(topic)
        known: tuple[str, ...] | None = None

        def look() -> None:
            nonlocal known
            found = self._node.get_publishers_info_by_topic(full)
            names = tuple(sorted(f"{end.node_namespace.rstrip('/')}/{end.node_name}" for end in found))
            if names != known:
                known = names
                callback(names)

        look()
        self.timer(PUBLISHERS_S, look)

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

        An executor cannot be spun from its own callback, so calls use a separate hidden node and executor.
        """
        full = resolve(name, self.namespace, self.name)
        node, executor, clients = self._caller_parts()
        if full not in clients:
            clients[full] = node.create_client(message_class(TRIGGER), full)
        deadline_s = self.now() + timeout_s
        if not clients[full].wait_for_service(timeout_sec=timeout_s):
            seen = node.get_service_names_and_types()
            raise unknown_service(full, (name for name, types in seen if TRIGGER in types), timeout_s)
        future = clients[full].call_async(message_class(TRIGGER).Request())
        executor.spin_until_future_complete(future, timeout_sec=max(0.0, deadline_s - self.now()))
        if not future.done():
            clients[full].remove_pending_request(future)
            raise BusError(
                f"The service '{full}' did not respond within {timeout_s:g} s; see the output of its node."
            )
        response = future.result()
        return bool(response.success), str(response.message)

    def _caller_parts(self) -> tuple[Any, Any, dict[str, Any]]:
        """Hidden node for calls, its executor, and its clients by service."""
        if self._caller is None:
            from rclpy.executors import SingleThreadedExecutor
            from rclpy.node import Node

            node = Node(
                f"_{self.name}_caller",
                context=self._context,
                use_global_arguments=False,  # otherwise `-r __node:=name` would rename this node, too
                enable_rosout=False,
                start_parameter_services=False,
            )
            executor = SingleThreadedExecutor(context=self._context)
            executor.add_node(node)
            self._caller = (node, executor, {})
        parts: tuple[Any, Any, dict[str, Any]] = self._caller
        return parts

    def parameters(self, node: str, names: Sequence[str], timeout_s: float) -> dict[str, Any]:
        """See `ParameterBus.parameters`."""
        full, end_s = resolve(node, self.namespace, self.name), self.now() + timeout_s

        def ask(service: str, kind: Any, request: Any) -> Any:
            caller, executor, clients = self._caller_parts()
            if service not in clients:
                clients[service] = caller.create_client(kind, service)
            client = clients[service]
            if not client.wait_for_service(timeout_sec=max(0.0, end_s - self.now())):
                raise BusError(f"No node '{full}' answers within {timeout_s:g} s: start it.")
            future = client.call_async(request)
            executor.spin_until_future_complete(future, timeout_sec=max(0.0, end_s - self.now()))
            if not future.done():
                client.remove_pending_request(future)
                raise BusError(f"The node '{full}' does not answer within {timeout_s:g} s: see its output.")
            return future.result()

        return read_parameters(ask, full, names)

    def trajectory_action(self, name: str) -> RosTrajectoryAction:
        """See `ActionBus.trajectory_action`."""
        resolve(name, self.namespace, self.name)
        action = RosTrajectoryAction(self._node, name)
        self._actions.append(action)
        return action

    def spin(self, until: Callable[[], bool]) -> None:
        """See `Bus.spin`. Raises BusError when other code of this process shuts ROS down."""
        from rclpy.executors import ExternalShutdownException

        while not until():
            try:
                self._executor.spin_once(timeout_sec=IDLE_S)
            except ExternalShutdownException as error:
                raise BusError(f"ROS was shut down under node '{self.name}'.") from error
            if (now_s := self.now()) - self._checked_s >= CHECK_S:
                self._checked_s = now_s
                for each in self._watches:
                    if (warning := each.check(now_s, self._node.count_publishers(each.topic))) is not None:
                        self._warn(warning)

    def close(self) -> None:
        """See `Bus.close`. Ctrl-C does not interrupt it."""
        if self._closed:
            return
        self._closed = True
        from rclpy.duration import Duration

        with shielded():
            deadline_s = self.now() + CLOSE_S
            if self._context.ok():
                for made, profile in self._publishers:
                    if not QUALITY[profile].offers_reliable:
                        continue
                    with suppress(RuntimeError):  # RCLError: some middlewares do not support it
                        made.wait_for_all_acked(Duration(seconds=max(0.0, deadline_s - self.now())))
            for action in self._actions:
                action.close()
            for node, executor in [
                *([self._caller[:2]] if self._caller else []),
                (self._node, self._executor),
            ]:
                executor.shutdown(timeout_sec=CLOSE_S)
                node.destroy_node()
            self._rclpy.try_shutdown(context=self._context)

    def _received_s(self, info: Any) -> float:
        """Local monotonic time of receipt; the current time where the middleware has none (CycloneDDS)."""
        at_ns, now_s = info["received_timestamp"], self.now()
        return min(now_s, at_ns / 1e9 - self._unix.update()) if at_ns > 0 else now_s


def offered(quality: Quality) -> Any:
    """Quality of service of a publisher, as rclpy's QoSProfile."""
    return qos_profile(Ask(quality.offers_reliable, quality.latched), quality.depth)


def qos_profile(ask: Ask, depth: int) -> Any:
    """Reliability and durability as rclpy's QoSProfile, keeping the last `depth` messages."""
    from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if ask.reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if ask.latched else DurabilityPolicy.VOLATILE,
    )


def _silent() -> Any:
    """Event callbacks of a subscription that do not log mismatched publishers."""
    try:
        from rclpy.event_handler import SubscriptionEventCallbacks
    except ImportError:  # ROS 2 Humble
        from rclpy.qos_event import SubscriptionEventCallbacks

    return SubscriptionEventCallbacks(use_default_callbacks=False)


def _content(message: Any) -> Hashable:
    """Content of a message for comparisons; latched messages are small."""
    return message if isinstance(message, bytes) else repr(message)


def why_no_rclpy(error: ImportError) -> str:
    """Message for a failed import of rclpy: the cause and the command that helps."""
    distribution = os.environ.get("ROS_DISTRO")
    if distribution:
        return (
            f"ROS 2 {distribution} is sourced, but this Python cannot import rclpy ({error}): rclpy is built "
            "for the distribution's own Python. Use that Python, or use bus=dds, after "
            "pip install 'robo-rl[dds]'"
        )
    return (
        "rclpy is part of ROS 2, and no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash - or use "
        "bus=dds, after pip install 'robo-rl[dds]'"
    )


def _checked(ros_type: str, **fields: Any) -> Any:
    """`new` that raises BusError for values that the message's setters refuse."""
    try:
        return new(ros_type, **fields)
    except (AssertionError, OverflowError, ValueError, TypeError) as error:
        raise BusError(f"A {ros_type} cannot hold {sorted(fields)}: {error}") from error
