"""The bus on rclpy: one node in a context of its own.

rclpy's signal handlers are not installed, because they would shut the context down before the node can
publish its stop.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hardware.bus.clocks import ClockOffset
from hardware.bus.dds.cdr import FAST
from hardware.bus.lifecycle import Lifecycle
from hardware.bus.names import domain_id, namespace_of, node_name, resolve
from hardware.bus.parameters import Parameter
from hardware.bus.protocol import Answer, M, Profile
from hardware.bus.quality import QUALITY, Quality, Repeats, RequestedQos
from hardware.bus.receiving import discarded_datagrams, enlarge_buffers
from hardware.bus.ros.caller import TRIGGER, ServiceCaller
from hardware.bus.ros.messages import from_ros, message_class, to_ros
from hardware.bus.ros.parameters import EMPTY_LIST, given, show
from hardware.bus.ros.publishers import RosPublisherWatch
from hardware.bus.ros.quality import offered, qos_profile, silent_events
from hardware.bus.ros.remote import ACTIVITY, RosTrajectoryAction, controller_states, read_parameters
from hardware.bus.ros.wait_set import wait_set_of
from hardware.bus.shield import shielded
from hardware.bus.timers import Timers
from hardware.bus.watch import TopicWatch, watch
from hardware.bus.wire import WIRE, check_kind
from robo_rl.core.errors import BusError, MissingDependencyError
from robo_rl.core.packages import pip_install

if TYPE_CHECKING:  # only nodes that have a lifecycle import rclpy's
    from hardware.bus.ros.lifecycle import RosLifecycle

IDLE_S = 0.05  # largest time between two checks of `until`
CHECK_S = 1.0  # period of the check for silent topics
PUBLISHERS_S = 0.2  # period of the look at the publishers of a watched topic, without messages on it
CLOSE_S = 1.0  # time that `close` waits for published messages to be delivered


class RosBus:
    """One ROS 2 node; see `hardware.bus.protocol.Bus`.

    Remappings and other `--ros-args` of the command line apply and may change its name. warn: called with
    warnings; without it they go to the logger of the node. Raises MissingDependencyError without rclpy.
    """

    discovery_s = 1.0

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
            from rclpy.context import Context
            from rclpy.executors import SingleThreadedExecutor
            from rclpy.node import Node
            from rclpy.signals import SignalHandlerOptions
        except ImportError as error:
            raise MissingDependencyError(why_no_rclpy(error)) from error
        self._rclpy, self._context = rclpy, Context()
        try:
            rclpy.init(
                context=self._context, domain_id=domain, signal_handler_options=SignalHandlerOptions.NO
            )
            self._node = Node(
                name,
                namespace=namespace or None,
                context=self._context,
                automatically_declare_parameters_from_overrides=True,  # for `given_parameters`
            )
        except (RuntimeError, ValueError) as error:  # RCLError, or a parameter or name that rclpy refuses
            raise BusError(why_no_start(error)) from error
        self._domain = domain_id(domain)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self.name, self.namespace = self._node.get_name(), self._node.get_namespace().rstrip("/")
        self._warn = warn or self._node.get_logger().warning
        self._waits = wait_set_of(self._context, self._node, self._executor, self._warn)
        self._publishers: list[Any] = []
        self._watches: list[TopicWatch] = []
        self._publisher_watches: dict[str, list[RosPublisherWatch]] = {}
        self._caller: ServiceCaller | None = None
        self._lifecycle: RosLifecycle | None = None
        self._timers = Timers()
        self._pending: deque[Callable[[], None]] = deque()
        self._actions: list[RosTrajectoryAction] = []
        self._checked_s, self._closed = self.now(), False
        self._unix = ClockOffset(time.time)

    def manage(self, activate: Callable[[], Answer], deactivate: Callable[[], Answer]) -> Lifecycle:
        """See `LifecycleBus.manage`."""
        from hardware.bus.ros.lifecycle import RosLifecycle

        self._lifecycle = RosLifecycle(self._node, activate, deactivate, self.log)
        self._waits.changed()
        return self._lifecycle

    def given_parameters(self) -> Mapping[str, Any]:
        """See `ParameterBus.given_parameters`."""
        return given(self._node)

    def show_parameters(self, parameters: Sequence[Parameter]) -> None:
        """See `ParameterBus.show_parameters`."""
        show(self._node, parameters)

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
        self._waits.changed()

        def publish(message: M) -> None:
            if self._closed:
                raise BusError(f"Node '{self.name}' is closed and cannot publish on '{full}'.")
            check_kind(full, kind, message)
            ros_message = to_ros(message)
            try:
                made.publish(ros_message)
            except Exception as error:  # rclpy raises RCLError, a class made in C, when the context is gone
                raise BusError(f"Publishing on '{full}' failed: {error}") from error

        return publish

    def subscribe(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """See `Bus.subscribe`."""
        on_message = self._decoded(topic, kind, callback)
        self._subscribe(topic, kind, profile, QUALITY[profile], on_message, raw=kind in FAST)

    def subscribe_queue(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """See `QueueBus.subscribe_queue`."""
        on_message = self._decoded(topic, kind, callback)
        self._subscribe(topic, kind, profile, QUALITY[profile].queued(), on_message, raw=kind in FAST)

    def _decoded(
        self, topic: str, kind: type[M], callback: Callable[[M, float], None]
    ) -> Callable[[Any, float], None]:
        warned = False

        def on_message(message: Any, received_s: float) -> None:
            nonlocal warned
            try:
                record = from_ros(kind, message)
            except BusError as error:
                if not warned:
                    full = self._node.resolve_topic_name(topic)
                    self._warn(f"A message on '{full}' is dropped, and others like it: {error}")
                warned = True
            else:
                callback(record, received_s)

        return on_message

    def subscribe_raw(
        self, topic: str, kind: type[Any], profile: Profile, callback: Callable[[bytes, float], None]
    ) -> None:
        """See `RawBus.subscribe_raw`."""
        enlarge_buffers(self._domain)
        quality = QUALITY[profile].recorded()
        self._subscribe(topic, kind, profile, quality, callback, raw=True, watched=False)

    def losses(self) -> int:
        """See `RawBus.losses`: discarded datagrams alone, because rclpy does not report a full queue."""
        return discarded_datagrams(self._domain)

    def _subscribe(
        self,
        topic: str,
        kind: type[Any],
        profile: Profile,
        quality: Quality,
        on_message: Callable[[Any, float], None],
        raw: bool,
        watched: bool = True,
    ) -> None:
        resolve(topic, self.namespace, self.name)
        full = self._node.resolve_topic_name(topic)  # after remapping
        topic_watch = watch(full, kind, profile, self.now()) if watched else None
        requested, repeats, made = quality.requested(), Repeats(), list[Any]()

        def receive(message: Any, info: Any) -> None:
            if len(requested) > 1 and not repeats.fresh((info["source_timestamp"], _content(message))):
                return
            for publishers in self._publisher_watches.get(full, ()):
                publishers.on_message(made[0])  # the first subscription matches every publisher
            received_s = self._received_s(info)
            if topic_watch is not None and (notice := topic_watch.on_message(received_s)) is not None:
                self._warn(notice)
            on_message(message, received_s)

        ros_type = message_class(WIRE[kind].ros_type)
        for qos in requested:
            # The first one matches every publisher, so only its mismatches are reported.
            events = {} if qos is requested[0] else {"event_callbacks": silent_events()}
            ros_profile = qos_profile(qos, quality.depth)
            made.append(
                self._node.create_subscription(ros_type, topic, receive, ros_profile, raw=raw, **events)
            )
        self._waits.changed()
        if topic_watch is not None:
            self._watches.append(topic_watch)

    def watch_publishers(self, topic: str, callback: Callable[[tuple[str, ...]], None]) -> None:
        """See `Bus.watch_publishers`."""
        resolve(topic, self.namespace, self.name)
        full = self._node.resolve_topic_name(topic)
        publishers = RosPublisherWatch(self._node, full, callback)
        self._publisher_watches.setdefault(full, []).append(publishers)
        publishers.look()
        self.timer(PUBLISHERS_S, publishers.look)

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        """See `Bus.timer`. In steady time, so that timers run on when simulated time is paused."""
        self._timers.add(period_s, callback, self.now())

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        """See `Bus.service`."""
        resolve(name, self.namespace, self.name)

        def answer(_: Any, response: Any) -> Any:
            response.success, response.message = callback()
            return response

        self._node.create_service(message_class(TRIGGER), name, answer)
        self._waits.changed()

    def call(self, name: str, timeout_s: float) -> Answer:
        """See `Bus.call`. No other callback of this node runs meanwhile."""
        full = resolve(name, self.namespace, self.name)
        return self._service_caller().trigger(full, timeout_s)

    def _service_caller(self) -> ServiceCaller:
        if self._caller is None:
            self._caller = ServiceCaller(self.name, self._context)
        return self._caller

    def remote_parameters(self, node: str, names: Sequence[str], timeout_s: float) -> dict[str, Any]:
        """See `RemoteParameterBus.remote_parameters`."""
        full, end_s = resolve(node, self.namespace, self.name), self.now() + timeout_s
        caller = self._service_caller()
        absent = BusError(f"No node '{full}' answers within {timeout_s:g} s: start it.")

        def call(service: str, kind: Any, request: Any) -> Any:
            return caller.call(service, kind, request, max(0.0, end_s - self.now()), absent)

        return read_parameters(call, full, names)

    def trajectory_action(self, name: str) -> RosTrajectoryAction:
        """See `ActionBus.trajectory_action`."""
        resolve(name, self.namespace, self.name)
        action = RosTrajectoryAction(self._node, name)
        self._actions.append(action)
        self._waits.changed()
        return action

    def watch_controllers(self, manager: str, callback: Callable[[dict[str, str]], None]) -> None:
        """See `ControllerBus.watch_controllers`. The manager publishes them on ~/activity, latched."""
        resolve(manager, self.namespace, self.name)
        with suppress(MissingDependencyError):

            def receive(message: Any, info: Any) -> None:
                callback(controller_states(message))

            kind, latched = message_class(ACTIVITY), qos_profile(RequestedQos(reliable=True, latched=True), 1)
            self._node.create_subscription(kind, f"{manager}/activity", receive, latched)
            self._waits.changed()

    def spin(self, until: Callable[[], bool]) -> None:
        """See `Bus.spin`. Raises BusError when other code of this process shuts ROS down."""
        while not until():
            if not self._context.ok():
                raise BusError(f"ROS was shut down under node '{self.name}'.")
            if self._pending:  # received messages are delivered before timers are checked
                self._pending.popleft()()
                continue
            now_s = self.now()
            if now_s - self._checked_s >= CHECK_S:
                self._check(now_s)
            due = self._timers.due(now_s)
            self._pending.extend(self._wait(0.0 if due else self._timers.next_s() - now_s))
            self._pending.extend(due or ([] if self._pending else self._timers.due(self.now())))

    def _wait(self, timeout_s: float) -> list[Callable[[], None]]:
        """Callbacks of the messages that come within `timeout_s` and 50 ms."""
        try:
            return self._waits.wait(min(IDLE_S, timeout_s))
        except Exception:  # RCLError or ExternalShutdownException, when the context is gone
            if self._context.ok():
                raise
            return []

    def _check(self, now_s: float) -> None:
        """Warn about mismatched qualities of service and silent topics."""
        self._checked_s = now_s
        self._waits.check_events()
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
            self._waits.close()
            self._lifecycle = None
            ends = [(self._node, self._executor)]
            for node, executor in (
                [(self._caller.node, self._caller.executor)] if self._caller else []
            ) + ends:
                executor.shutdown(timeout_sec=CLOSE_S)
                node.destroy_node()
            self._rclpy.try_shutdown(context=self._context)

    def _received_s(self, info: Any) -> float:
        """Local monotonic time of receipt; the current time where the middleware has none (CycloneDDS)."""
        at_ns, now_s = info["received_timestamp"], self.now()
        return min(now_s, at_ns / 1e9 - self._unix.update()) if at_ns > 0 else now_s


def _content(message: Any) -> Hashable:
    """Content of a message for comparisons; latched messages are small."""
    return message if isinstance(message, bytes) else repr(message)


def why_no_start(error: RuntimeError | ValueError) -> str:
    """Message for a failed start of ROS, without the places in its source."""
    if "PARAMETER_NOT_SET" in str(error):  # as which rclpy declares an empty list
        return EMPTY_LIST
    text = re.sub(r",?\s+at /\S+:\d+", "", str(error)).removeprefix("failed to initialize rcl: ").strip()
    return (
        f"ROS 2 cannot start this node: {text.rstrip('.')}. Check the arguments after --ros-args, and "
        "RMW_IMPLEMENTATION and ROS_DOMAIN_ID."
    )


def why_no_rclpy(error: ImportError) -> str:
    """Message for a failed import of rclpy: the cause and the command that helps."""
    distribution = os.environ.get("ROS_DISTRO")
    if distribution:
        return (
            f"ROS 2 {distribution} is sourced, but this Python cannot import rclpy ({error}): rclpy is built "
            "for the distribution's own Python. Use that Python, or use bus=dds, after "
            f"{pip_install('dds')}"
        )
    return (
        "rclpy is part of ROS 2, and no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash - or use "
        f"bus=dds, after {pip_install('dds')}"
    )
