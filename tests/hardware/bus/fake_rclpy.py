"""Fake rclpy with its documented calls (Jazzy); refuses what rclpy refuses.

Signatures are rclpy's: keyword-only where rclpy has them so. One process, one `World` of topics at a time.
"""

from __future__ import annotations

import enum
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.hardware.bus.fake_ros_messages import (
    Messages,
    Request,
    Response,
    deserialize_message,
    serialized,
)

SignalHandlerOptions = enum.Enum("SignalHandlerOptions", "NO ALL SIGINT SIGTERM")
ReliabilityPolicy = enum.Enum("ReliabilityPolicy", "RELIABLE BEST_EFFORT")
DurabilityPolicy = enum.Enum("DurabilityPolicy", "VOLATILE TRANSIENT_LOCAL")
HistoryPolicy = enum.Enum("HistoryPolicy", "KEEP_LAST KEEP_ALL")
PACKAGES = [
    "builtin_interfaces",
    "control_msgs",
    "std_msgs",
    "geometry_msgs",
    "sensor_msgs",
    "trajectory_msgs",
    "nav_msgs",
]
PACKAGES += ["diagnostic_msgs"]


@dataclass
class World:
    """State shared by all nodes of a test."""

    subscriptions: list[Any] = field(default_factory=list)
    publishers: list[Any] = field(default_factory=list)
    unseen: list[Any] = field(default_factory=list)  # publishers that are matched, but not in the graph yet
    latched: dict[str, list[Any]] = field(default_factory=dict)
    services: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    rosout: list[str] = field(default_factory=list)  # of information alone
    received_ns: int = 0  # what the middleware says; CycloneDDS says 0


world = World()


def get_rmw_implementation_identifier() -> str:
    return "rmw_fastrtps_cpp"


def install(monkeypatch: Any) -> World:
    """Make `import rclpy` and the message packages work, until the end of the test."""
    monkeypatch.setattr(sys.modules[__name__], "world", World())
    places = {
        "": (init, try_shutdown, get_rmw_implementation_identifier),
        ".node": (Node,),
        ".executors": (SingleThreadedExecutor, ExternalShutdownException),
        ".qos": (QoSProfile, ReliabilityPolicy, DurabilityPolicy, HistoryPolicy),
        ".context": (Context,),
        ".signals": (SignalHandlerOptions,),
        ".impl": (),
        ".serialization": (deserialize_message,),
        ".event_handler": (SubscriptionEventCallbacks,),
        ".duration": (Duration,),
    }
    modules = {f"rclpy{place}": ModuleType(f"rclpy{place}") for place in places}
    for place, things in places.items():
        for thing in things:
            setattr(modules[f"rclpy{place}"], thing.__name__, thing)
    modules["rclpy.impl.implementation_singleton"] = ModuleType("rclpy.impl.implementation_singleton")
    modules["rclpy.impl.implementation_singleton"].rclpy_implementation = SimpleNamespace(WaitSet=WaitSet)
    for name in PACKAGES:
        modules |= {name: ModuleType(name), f"{name}.msg": Messages(name)}
    modules |= {"std_srvs": ModuleType("std_srvs"), "std_srvs.srv": ModuleType("std_srvs.srv")}
    modules["std_srvs.srv"].Trigger = SimpleNamespace(Request=Request, Response=Response)
    for name, module in modules.items():
        module.__path__ = []  # a package
        module.__spec__ = SimpleNamespace(name=name)
        monkeypatch.setitem(sys.modules, name, module)
    return world


def init(
    *, args: Any = None, context: Any, domain_id: int | None = None, signal_handler_options: Any = None
) -> None:
    """Require that rclpy does not handle signals: it would shut the context down before the last message is
    out.
    """
    assert signal_handler_options is SignalHandlerOptions.NO
    assert not context.up, "init twice"
    context.up = True


def try_shutdown(*, context: Any = None, uninstall_handlers: Any = None) -> None:
    world.log.append("shutdown")
    context.up = False


class Clock:
    def now(self) -> Any:
        return SimpleNamespace(nanoseconds=time.time_ns())


class Duration:
    def __init__(self, *, seconds: float = 0, nanoseconds: int = 0) -> None:
        self.nanoseconds = int(seconds * 1e9) + nanoseconds


class SubscriptionEventCallbacks:
    def __init__(self, *, use_default_callbacks: bool = True) -> None:
        self.use_default_callbacks = use_default_callbacks


class Context:
    def __init__(self) -> None:
        self.up, self.handle = False, object()

    def ok(self) -> bool:
        return self.up


class ExternalShutdownException(Exception):  # noqa: N818 - rclpy's name
    pass


class QoSProfile:
    def __init__(self, *, history: Any, depth: int, reliability: Any, durability: Any) -> None:
        assert history is HistoryPolicy.KEEP_LAST
        self.depth, self.reliable = depth, reliability is ReliabilityPolicy.RELIABLE
        self.latched = durability is DurabilityPolicy.TRANSIENT_LOCAL

    def serves(self, asked: QoSProfile) -> bool:
        return self.reliable >= asked.reliable and self.latched >= asked.latched


class Node:
    def __init__(
        self,
        node_name: str,
        *,
        context: Any = None,
        cli_args: Any = None,
        namespace: str | None = None,
        use_global_arguments: bool = True,
        enable_rosout: bool = True,
        start_parameter_services: bool = True,
        parameter_overrides: Any = None,
        allow_undeclared_parameters: bool = False,
        automatically_declare_parameters_from_overrides: bool = False,
        enable_logger_service: bool = False,
    ) -> None:
        assert context.up
        self._name, self._namespace, self.context = node_name, "/" + (namespace or "").strip("/"), context
        self.subscriptions, self.services = list[Any](), list[Any]()
        self.clients, self.timers, self.guards, self.waitables = (list[Any]() for _ in range(4))
        world.nodes.append(self)

    def get_name(self) -> str:
        return self._name

    def get_namespace(self) -> str:
        return self._namespace

    def get_clock(self) -> Any:
        return Clock()

    def get_logger(self) -> Any:
        return SimpleNamespace(warning=world.log.append, info=world.rosout.append)

    def resolve_topic_name(self, topic: str, *, only_expand: bool = False) -> str:
        if topic.startswith("~/"):
            topic = f"{self._name}{topic[1:]}"
        return topic if topic.startswith("/") else f"{self._namespace.rstrip('/')}/{topic}"

    def count_publishers(self, topic_name: str) -> int:
        return sum(publisher.topic == topic_name for publisher in world.publishers)

    def get_publishers_info_by_topic(self, topic_name: str, no_mangle: bool = False) -> list[Any]:
        """Publishers in the graph, which lags behind the middleware where `world.unseen` says so."""
        seen = [publisher for publisher in world.publishers if publisher not in world.unseen]
        found = (publisher.node for publisher in seen if publisher.topic == topic_name)
        return [SimpleNamespace(node_name=n.get_name(), node_namespace=n.get_namespace()) for n in found]

    def create_publisher(
        self,
        msg_type: Any,
        topic: str,
        qos_profile: Any,
        *,
        callback_group: Any = None,
        event_callbacks: Any = None,
    ) -> Any:
        publisher = Publisher(msg_type, self.resolve_topic_name(topic), qos_profile, self)
        world.publishers.append(publisher)
        return publisher

    def create_subscription(
        self,
        msg_type: Any,
        topic: str,
        callback: Any,
        qos_profile: Any,
        *,
        callback_group: Any = None,
        event_callbacks: Any = None,
        raw: bool = False,
    ) -> Any:
        made = SimpleNamespace(
            msg_type=msg_type,
            topic=self.resolve_topic_name(topic),
            callback=callback,
            handle=SubscriptionHandle(msg_type, raw),
            qos=qos_profile,
            raw=raw,
            warns=event_callbacks is None or event_callbacks.use_default_callbacks,
            get_publisher_count=lambda: self.count_publishers(self.resolve_topic_name(topic)),
        )
        world.subscriptions.append(made)
        self.subscriptions.append(made)
        for message, sent_ns in world.latched.get(made.topic, []) if qos_profile.latched else []:
            deliver(made, message, sent_ns)
        return made

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *, qos_profile: Any = None) -> Any:
        world.services[self.resolve_topic_name(srv_name)] = (self, callback)
        self.services.append(SimpleNamespace(handle=ServiceHandle()))

    def get_service_names_and_types(self) -> list[tuple[str, list[str]]]:
        """Services offered or only requested, as in the middlewares of ROS."""
        asked = dict.fromkeys([*world.asked, *world.services])
        return [(name, ["std_srvs/srv/Trigger"]) for name in asked] + [
            ("/x/set", ["rcl_interfaces/srv/SetParameters"])
        ]

    def create_client(self, srv_type: Any, srv_name: str, *, qos_profile: Any = None) -> Any:
        world.asked.append(self.resolve_topic_name(srv_name))
        return Client(self.resolve_topic_name(srv_name))

    def destroy_node(self) -> None:
        assert self.context.up, "destroyed after shutdown"
        world.log.append(f"destroyed {self._name}")
        world.nodes.remove(self)


class Publisher:
    def __init__(self, msg_type: Any, topic: str, qos_profile: Any, node: Any) -> None:
        self.msg_type, self.topic, self.qos, self.node = msg_type, topic, qos_profile, node

    def publish(self, msg: Any) -> None:
        assert isinstance(msg, self.msg_type | bytes)  # bytes are taken as serialized
        if not self.node.context.up:
            raise RuntimeError("publisher's context is invalid")
        sent_ns = time.time_ns()
        if self.qos.latched:
            world.latched[self.topic] = [(msg, sent_ns)]
        for subscription in world.subscriptions:
            matches = (
                self.qos.reliable >= subscription.qos.reliable
                and self.qos.latched >= subscription.qos.latched
            )
            if subscription.topic == self.topic and subscription.msg_type is self.msg_type and matches:
                deliver(subscription, msg, sent_ns)

    def wait_for_all_acked(self, timeout: Duration) -> bool:
        assert isinstance(timeout, Duration)
        assert timeout.nanoseconds >= 0, "a negative timeout waits for ever"
        world.log.append(f"acked {self.topic}")
        return True


def deliver(subscription: Any, msg: Any, sent_ns: int) -> None:
    info = {"source_timestamp": sent_ns, "received_timestamp": world.received_ns}
    if isinstance(msg, bytes):
        what = msg if subscription.raw else deserialize_message(msg, subscription.msg_type)
    else:
        what = serialized(msg) if subscription.raw else msg
    subscription.handle.messages.append((what, info))


class SubscriptionHandle:
    """The middleware's view of a subscription."""

    def __init__(self, msg_type: Any, raw: bool) -> None:
        self.pointer, self.messages, self._expected = id(self), deque[Any](), (msg_type, raw)

    def take_message(self, pymsg_type: Any, raw: bool) -> Any:
        assert (pymsg_type, raw) == self._expected
        return self.messages.popleft() if self.messages else None


class ServiceHandle:
    """A service without requests; they are served where the client waits."""

    messages: tuple[Any, ...] = ()

    @property
    def pointer(self) -> int:
        return id(self)


class WaitSet:
    """Waits for messages; entities have to be added again after each wait, as in rcl."""

    def __init__(
        self, subscriptions: int, guards: int, timers: int, clients: int, services: int, events: int,
        context_handle: Any,
    ) -> None:  # fmt: skip
        self.room = {"subscription": subscriptions, "service": services, "guard_condition": guards}
        self.clear_entities()

    def clear_entities(self) -> None:
        self.added: dict[str, list[Any]] = {kind: [] for kind in self.room}

    def add_subscription(self, handle: Any) -> None:
        self._add("subscription", handle)

    def add_service(self, handle: Any) -> None:
        self._add("service", handle)

    def _add(self, kind: str, handle: Any) -> None:
        self.added[kind].append(handle)
        assert len(self.added[kind]) <= self.room[kind], "the wait set is full"

    def wait(self, timeout_nsec: int) -> None:
        late_ns = time.monotonic_ns() + timeout_nsec
        while not any(self.get_ready_entities(kind) for kind in self.added):
            if time.monotonic_ns() >= late_ns:
                break
            time.sleep(0.001)
        self.added = {kind: [h for h in handles if h.messages] for kind, handles in self.added.items()}

    def get_ready_entities(self, kind: str) -> list[int]:
        return [handle.pointer for handle in self.added[kind] if handle.messages]


class SingleThreadedExecutor:
    def __init__(self, *, context: Any = None) -> None:
        self.context, self.nodes, self.spinning = context, [], False

    def add_node(self, node: Any) -> bool:
        self.nodes.append(node)
        return True

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Executor work, of which there is none here; never from within one of its own callbacks."""
        assert not self.spinning, "an executor cannot spin within its own callback"
        if not self.context.up:
            raise ExternalShutdownException

    def spin_until_future_complete(self, future: Any, timeout_sec: float | None = None) -> None:
        late_s = time.monotonic() + (timeout_sec or 0.0)
        while not future.done() and time.monotonic() < late_s:
            future.serve()

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        return True


class Client:
    """Client of a service. The server answers while the future is waited for, unless it is called `dead`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wait_for_service(self, timeout_sec: float | None = None) -> bool:
        return self.name in world.services

    def call_async(self, request: Any) -> Any:
        assert isinstance(request, Request)
        answers: list[Any] = []

        def serve() -> None:
            if "dead" not in self.name:
                answers.append(world.services[self.name][1](request, Response()))

        return SimpleNamespace(done=lambda: bool(answers), result=lambda: answers[0], serve=serve)

    def remove_pending_request(self, future: Any) -> None:
        assert not future.done()
