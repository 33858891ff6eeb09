"""The bus on DDS without ROS: topics, Trigger services and the node graph, compatible with rmw_cyclonedds.

The network interface is an argument, otherwise ROBO_RL_INTERFACE, otherwise the loopback. The domain is an
argument, otherwise ROS_DOMAIN_ID.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from hardware.bus.clocks import ClockOffset
from hardware.bus.dds.cdr import ros_types
from hardware.bus.dds.endpoints import DdsReader, DdsWriter
from hardware.bus.names import domain_id, namespace_of, node_name, resolve
from hardware.bus.parameters import Parameter
from hardware.bus.protocol import Answer, M, Profile
from hardware.bus.quality import QUALITY, Quality, Repeats, mismatch
from hardware.bus.receiving import discarded_datagrams, enlarge_buffers
from hardware.bus.timers import Timers
from hardware.bus.watch import TopicWatch, watch
from hardware.bus.wire import WIRE, check_kind
from robo_rl.core.errors import BusError, MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.text.nearest import nearest

CHECK_S = 1.0  # period of the check for mismatches and silent topics
IDLE_S = 0.05  # largest time between two checks of `until`
REPLY_S = 0.005  # the same while a response waits for the discovery of its client
CLOSE_S = 1.0  # time that `close` waits for published messages to be delivered


class DdsBus:
    """One node without ROS; see `hardware.bus.protocol.Bus`.

    domain: 0 to 232. interface: of the network, such as "eth0". warn: called with warnings; without it they
    go to stderr. Raises MissingDependencyError without cyclonedds and rosbags, and BusError for an unusable
    name, domain or interface.
    """

    discovery_s = 1.0

    def __init__(
        self,
        name: str,
        namespace: str = "",
        domain: int | None = None,
        interface: str | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        try:
            from cyclonedds.core import DDSException, WaitSet

            from hardware.bus.dds import graph as dds_graph
            from hardware.bus.dds import types as dds_types
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"The DDS bus needs the package '{error.name}', which is not installed. Run: "
                f"{pip_install('dds')}"
            ) from error
        self.name, self.namespace = node_name(name), namespace_of(namespace)
        self._ros, self._types, self._error = ros_types(), dds_types, DDSException
        self._warn = warn or (lambda sentence: print(f"{name}: {sentence}", file=sys.stderr, flush=True))
        self._domain = domain_id(domain)
        interface = interface or os.environ.get("ROBO_RL_INTERFACE") or dds_types.LOOPBACK
        self._participant: Any = dds_types.join(self._domain, interface)
        self._graph = dds_graph.NodeGraph(self._ros, self._participant, self.name, self.namespace)
        self._waitset: Any = WaitSet(self._participant)
        self._kinds: dict[str, type[Any]] = {}
        self._writers: list[DdsWriter] = []
        self._readers: list[DdsReader] = []
        self._clients: dict[str, Any] = {}
        self._servers: list[Any] = []
        self._publisher_watch: Any = None  # made for the first topic that is watched
        self._timers = Timers()
        self._pending: deque[Callable[[], None]] = deque()
        self._checked_s = self._polled_s = self.now()
        self._unix = ClockOffset(time.time)
        self._closed = False

    def now(self) -> float:
        return time.monotonic()

    def stamp(self) -> float:
        return time.time()

    def publisher(self, topic: str, kind: type[M], profile: Profile) -> Callable[[M], None]:
        """See `Bus.publisher`."""
        from cyclonedds.pub import DataWriter

        full, made = self._topic(topic, kind)
        write = self._types.write
        qos = self._types.writer_qos(QUALITY[profile], self._ros.type_hash(WIRE[kind].ros_type))
        writer = DdsWriter(full, DataWriter(self._participant, made, qos), QUALITY[profile].offers_reliable)
        self._writers.append(writer)
        self._graph.add([], [writer.dds])

        def publish(message: M) -> None:
            if writer.dds is None:
                raise BusError(f"Node '{self.name}' is closed and cannot publish on '{full}'.")
            check_kind(full, kind, message)
            try:
                write(writer.dds, self._ros.encode(message))
            except self._error as error:
                raise BusError(f"Publishing on '{full}' failed: {error}") from error

        return publish

    def subscribe(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """See `Bus.subscribe`."""
        self._decode(
            topic,
            kind,
            profile,
            QUALITY[profile],
            lambda message, received_s, _: callback(message, received_s),
        )

    def subscribe_senders(
        self,
        topic: str,
        kind: type[M],
        profile: Profile,
        on_message: Callable[[M, float, int], None],
        on_senders: Callable[[frozenset[int]], None],
    ) -> None:
        """See `SenderBus.subscribe_senders`."""
        self._publishers().add_senders(resolve(topic, self.namespace, self.name), on_senders)
        self._decode(topic, kind, profile, QUALITY[profile].queued(), on_message)

    def _decode(
        self,
        topic: str,
        kind: type[M],
        profile: Profile,
        quality: Quality,
        callback: Callable[[M, float, int], None],
    ) -> None:
        full = resolve(topic, self.namespace, self.name)
        watched = watch(full, kind, profile, self.now())
        warned = False

        def on_message(cdr: bytes, received_s: float, sender: int) -> None:
            nonlocal warned
            if watched is not None and (notice := watched.on_message(received_s)) is not None:
                self._warn(notice)
            try:
                message = self._ros.decode(cdr, kind)
            except BusError as error:
                if not warned:
                    self._warn(f"A message on '{full}' is dropped, and others like it: {error}")
                warned = True
            else:
                callback(message, received_s, sender)

        self._subscribe(topic, kind, quality, on_message, watched)

    def subscribe_raw(
        self, topic: str, kind: type[Any], profile: Profile, callback: Callable[[bytes, float], None]
    ) -> None:
        """See `RawBus.subscribe_raw`."""
        enlarge_buffers(self._domain)
        quality = QUALITY[profile].recorded()
        self._subscribe(topic, kind, quality, lambda cdr, at, _: callback(cdr, at), None, recorded=True)

    def losses(self) -> int:
        """See `RawBus.losses`."""
        return discarded_datagrams(self._domain) + sum(reader.overruns for reader in self._readers)

    def _subscribe(
        self,
        topic: str,
        kind: type[Any],
        quality: Quality,
        on_message: Callable[[bytes, float, int], None],
        watched: TopicWatch | None,
        recorded: bool = False,
    ) -> None:
        from cyclonedds.sub import DataReader

        full, made = self._topic(topic, kind)
        type_hash = self._ros.type_hash(WIRE[kind].ros_type)
        requested, repeats = quality.requested(), Repeats()

        def on_sample(cdr: bytes, info: Any, received_s: float) -> None:
            sent = info.publication_handle, info.source_timestamp, cdr
            if len(requested) == 1 or repeats.fresh(sent):
                on_message(cdr, received_s, info.publication_handle)

        for qos in requested:
            dds = DataReader(self._participant, made, self._types.reader_qos(qos, quality, type_hash))
            # The first reader matches every publisher, so only its mismatches are reported.
            first = qos is requested[0]
            self._attach(DdsReader(full, dds, on_sample, watched, first, quality.depth, recorded))
            self._graph.add([dds], [])

    def watch_publishers(self, topic: str, callback: Callable[[tuple[str, ...]], None]) -> None:
        """See `Bus.watch_publishers`."""
        self._publishers().add(resolve(topic, self.namespace, self.name), callback)

    def _publishers(self) -> Any:
        if self._publisher_watch is None:
            from hardware.bus.dds.publications import PublisherWatch

            self._publisher_watch = PublisherWatch(self._ros, self._participant)
            self._waitset.attach(self._publisher_watch.condition)
        return self._publisher_watch

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        self._timers.add(period_s, callback, self.now())

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        """See `Bus.service`."""
        from hardware.bus.dds.service import Server, trigger

        full = resolve(name, self.namespace, self.name)
        self._serve([Server(self._participant, full, trigger(callback))])

    def given_parameters(self) -> Mapping[str, Any]:
        """See `ParameterBus.given_parameters`: nothing, because --ros-args are read by rclpy alone."""
        return {}

    def show_parameters(self, parameters: Sequence[Parameter]) -> None:
        """See `ParameterBus.show_parameters`."""
        from hardware.bus.dds.parameters import parameter_servers

        node = f"{self.namespace}/{self.name}"
        self._serve(parameter_servers(self._participant, self._ros, node, parameters))

    def _serve(self, servers: Sequence[Any]) -> None:
        for server in servers:
            ends, full = server.ends, server.service
            self._writers.append(DdsWriter(full, ends.writer, True, ends))
            self._servers.append(server)
            self._attach(DdsReader(full, ends.reader, _requests_of(server), None))
        ends_of_all = [server.ends for server in servers]
        self._graph.add([ends.reader for ends in ends_of_all], [ends.writer for ends in ends_of_all])

    def call(self, name: str, timeout_s: float) -> Answer:
        """See `Bus.call`. No other callback of this node runs meanwhile."""
        from hardware.bus.dds.service import Client

        full = resolve(name, self.namespace, self.name)
        if full not in self._clients:
            self._clients[full] = Client(self._participant, full)
            self._graph.add([self._clients[full].ends.reader], [self._clients[full].ends.writer])
        answer: Answer = self._clients[full].call(timeout_s)
        return answer

    def spin(self, until: Callable[[], bool]) -> None:
        """See `Bus.spin`."""
        while not until():
            if self._servers:
                self._send_responses()
            if self._pending:  # received messages are delivered before timers are checked
                self._pending.popleft()()
                continue
            now_s = self.now()
            if now_s - self._checked_s >= CHECK_S:
                self._check(now_s)
            due = self._timers.due(now_s)
            self._wait(0.0 if due else self._timers.next_s() - now_s)
            self._pending.extend(due or ([] if self._pending else self._timers.due(self.now())))

    def close(self) -> None:
        """See `Bus.close`."""
        if self._closed:
            return
        self._closed = True
        while any(server.has_pending for server in self._servers):  # each response waits at most DISCOVERY_S
            self._send_responses()
            time.sleep(REPLY_S)
        deadline_s = self.now() + CLOSE_S
        for writer in self._writers:
            if writer.reliable:
                # If a reader does not acknowledge in time, the binding raises AttributeError.
                with suppress(AttributeError, self._error):
                    writer.dds.wait_for_acks(max(0, int((deadline_s - self.now()) * 1e9)))
        self._waitset = None
        if self._publisher_watch is not None:
            self._publisher_watch.close()
        for end in self._ends():
            end.close()
        for client in self._clients.values():
            client.close()
        self._graph.close()
        self._participant = None
        self._types.leave_domain(self._domain)

    def _topic(self, topic: str, kind: type[Any]) -> tuple[str, Any]:
        from cyclonedds.qos import Qos
        from cyclonedds.topic import Topic

        full = resolve(topic, self.namespace, self.name)
        if self._kinds.setdefault(full, kind) is not kind:
            raise BusError(
                f"This node uses '{full}' as {kind.__name__} and as {self._kinds[full].__name__}; expected "
                "one type."
            )
        carrier = self._types.carrier(self._ros, WIRE[kind].ros_type)
        try:
            return full, Topic(self._participant, f"rt{full}", carrier, Qos(self._types.PLAIN))
        except self._error as error:
            raise BusError(f"Topic '{full}' cannot be used as {WIRE[kind].ros_type}: {error}") from error

    def _ends(self) -> list[DdsWriter | DdsReader]:
        return [*self._writers, *self._readers]

    def _attach(self, reader: DdsReader) -> None:
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState

        reader.condition = ReadCondition(reader.dds, ViewState.Any | SampleState.Any | InstanceState.Any)
        self._waitset.attach(reader.condition)
        self._readers.append(reader)

    def _send_responses(self) -> None:
        """Send the responses to clients that have been discovered since the request."""
        for server in self._servers:
            if server.has_pending:
                server.send_ready()

    def _wait(self, timeout_s: float) -> None:
        """Wait for messages, at most `timeout_s` and 50 ms; queue them with their times of receipt."""
        idle_s = REPLY_S if any(server.has_pending for server in self._servers) else IDLE_S
        buffered = self._waitset.wait(0) > 0
        if not buffered and min(idle_s, timeout_s) > 0.0:
            self._waitset.wait(int(min(idle_s, timeout_s) * 1e9))
        woke_s, unix_s, take = self.now(), self._unix.update(), self._types.take
        # A message that was buffered came after the last poll. The sender's clock says when, in this
        # interval.
        earliest_s = self._polled_s if buffered else woke_s
        found: list[tuple[tuple[float, int], Callable[[], None]]] = []
        for reader in self._readers:
            for cdr, info in reader.take(take):
                if info.valid_data:
                    sent_s = info.source_timestamp / 1e9 - unix_s
                    # A latched message from before the subscription is received at the subscription.
                    received_s = min(woke_s, max(earliest_s, reader.since_s, sent_s))
                    handle = partial(reader.on_sample, cdr, info, received_s)
                    found.append(((received_s, info.source_timestamp), handle))
        self._pending.extend(handle for _, handle in sorted(found, key=lambda pair: pair[0]))
        self._polled_s = woke_s
        if self._publisher_watch is not None:  # after taking, before handling: see PublisherWatch
            self._publisher_watch.poll()

    def _check(self, now_s: float) -> None:
        """Warn about mismatched qualities of service, clients of another RMW and silent topics."""
        self._checked_s = now_s
        if self._publisher_watch is not None:
            self._publisher_watch.look_up_names()
        for end in self._ends():
            if (policy := end.mismatched()) is not None:
                self._warn(mismatch(end.topic, policy, isinstance(end, DdsWriter)))
        for server in self._servers:
            if server.foreign_client():
                self._warn(server.no_response)
        for reader in self._readers:
            if reader.watch is not None:
                matched = len(reader.dds.get_matched_publications())
                warning = reader.watch.check(now_s, matched, "" if matched else self._hint(reader.topic))
                if warning is not None:
                    self._warn(warning)

    def _hint(self, topic: str) -> str:
        """A likely cause for a topic without a publisher: another type, or a similar name."""
        from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
        from cyclonedds.core import InstanceState

        found = BuiltinDataReader(self._participant, BuiltinTopicDcpsPublication).read(1000)
        # A writer that ends just now is listed too, in part without names.
        known = [end for end in found if end.sample_info.instance_state == int(InstanceState.Alive)]
        others = {end.topic_name[2:]: end.type_name for end in known if end.topic_name.startswith("rt/")}
        ours = next(reader.dds.topic.typename for reader in self._readers if reader.topic == topic)
        if topic in others:
            return f"it is published as {others[topic]}, not as {ours}" if others[topic] != ours else ""
        same_type = [other for other, kind in others.items() if kind == ours]
        word = topic.rsplit("/", 1)[1]
        near = [other for other in same_type if other.rsplit("/", 1)[1] == word]
        near = near or nearest(topic, same_type, 1)
        return f"did you mean '{near[0]}'? Check the namespace" if near else ""


def _requests_of(server: Any) -> Callable[[bytes, Any, float], None]:
    return lambda cdr, info, received_s: server.on_request(cdr, info)
