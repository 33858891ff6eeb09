"""The bus over DDS without ROS: topics, Trigger services and the node graph as rmw_cyclonedds has them,
nothing more.

Loopback alone unless another interface is asked for, by argument or by ROBO_RL_INTERFACE; the domain is
ROS_DOMAIN_ID.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from typing import Any

from hardware.bus.dds.cdr import INSTALL, ros_types
from hardware.bus.names import domain_id, namespace_of, node_name, resolve
from hardware.bus.protocol import Answer, M, Profile
from hardware.bus.quality import QUALITY, mismatch
from hardware.bus.timers import Timers
from hardware.bus.watch import TopicWatch, watch
from hardware.bus.wire import WIRE, check_kind
from robo_rl.core.errors import BusError, MissingDependencyError

LOOK_S = 1.0  # how often mismatches and silent topics are looked for
IDLE_S = 0.05  # the longest wait between two looks at `until`
ASK_S = 0.005  # the same while a service owes an answer to a client that is not yet found
GONE_S = 1.0  # how long `close` waits for readers to have what was published


class DdsBus:
    """One node. `warn` takes the sentences about what does not work on the bus; without it they go to
    stderr.
    """

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
                f"The DDS bus needs the package '{error.name}', which is not installed. Run: {INSTALL}"
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
        self._writers: list[_Writer] = []
        self._readers: list[_Reader] = []
        self._clients: dict[str, Any] = {}
        self._servers: list[Any] = []
        self._timers = Timers()
        self._pending: deque[Callable[[], None]] = deque()
        self._looked_s = self._polled_s = self.now()
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
        qos = self._types.profile_qos(QUALITY[profile], True, self._ros.type_hash(WIRE[kind].ros_type))
        writer = _Writer(full, DataWriter(self._participant, made, qos), QUALITY[profile].offers_reliable)
        self._writers.append(writer)
        self._graph.add([], [writer.dds])

        def publish(message: M) -> None:
            if writer.dds is None:
                raise BusError(
                    f"Node '{self.name}' has left the bus and cannot publish on '{full}' any more."
                )
            check_kind(full, kind, message)
            try:
                write(writer.dds, self._ros.encode(message))
            except self._error as error:
                raise BusError(f"Publishing on '{full}' failed: {error}") from error

        return publish

    def subscribe(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """See `Bus.subscribe`. What cannot be read is dropped, with a sentence the first time."""
        full = resolve(topic, self.namespace, self.name)
        watched = watch(full, kind, profile, self.now())
        complained = False

        def take(cdr: bytes, received_s: float) -> None:
            nonlocal complained
            if watched is not None and (said := watched.hear(received_s)) is not None:
                self._warn(said)
            try:
                message = self._ros.decode(cdr, kind)
            except BusError as error:
                if not complained:
                    self._warn(f"A message on '{full}' is dropped, and others like it: {error}")
                complained = True
            else:
                callback(message, received_s)

        self._subscribe(topic, kind, profile, take, watched)

    def subscribe_raw(
        self, topic: str, kind: type[Any], profile: Profile, callback: Callable[[bytes, float], None]
    ) -> None:
        """See `RawBus.subscribe_raw`."""
        self._subscribe(topic, kind, profile, callback, None)

    def _subscribe(
        self,
        topic: str,
        kind: type[Any],
        profile: Profile,
        take: Callable[[bytes, float], None],
        watched: TopicWatch | None,
    ) -> None:
        from cyclonedds.sub import DataReader

        full, made = self._topic(topic, kind)
        qos = self._types.profile_qos(QUALITY[profile], False, self._ros.type_hash(WIRE[kind].ros_type))
        dds = DataReader(self._participant, made, qos)
        reader = _Reader(full, dds, lambda cdr, info, received_s: take(cdr, received_s), watched)
        self._attach(reader)
        self._graph.add([reader.dds], [])

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        self._timers.add(period_s, callback, self.now())

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        """See `Bus.service`."""
        from hardware.bus.dds.service import Server

        full = resolve(name, self.namespace, self.name)
        server = Server(self._participant, full, callback)
        ends = server.ends
        reader = _Reader(full, ends.reader, lambda cdr, info, received_s: server.take(cdr, info), None)
        self._writers.append(_Writer(full, ends.writer, True, ends))
        self._servers.append(server)
        self._attach(reader)
        self._graph.add([ends.reader], [ends.writer])

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
                self._answer()
            if self._pending:  # what has just come is handed over before timers are looked at
                self._pending.popleft()()
                continue
            now_s = self.now()
            if now_s - self._looked_s >= LOOK_S:
                self._look(now_s)
            due = self._timers.due(now_s)
            self._wait(0.0 if due else self._timers.next_s() - now_s)
            self._pending.extend(due or ([] if self._pending else self._timers.due(self.now())))

    def close(self) -> None:
        """Leave, after readers have what was published, or a second has passed."""
        if self._closed:
            return
        self._closed = True
        while any(server.waits for server in self._servers):  # each answer waits for READY_S at most
            self._answer()
            time.sleep(ASK_S)
        deadline_s = self.now() + GONE_S
        for writer in self._writers:
            if writer.reliable:
                # A reader that hangs acknowledges nothing; the binding stumbles over the timeout
                # (AttributeError).
                with suppress(AttributeError, self._error):
                    writer.dds.wait_for_acks(max(0, int((deadline_s - self.now()) * 1e9)))
        self._waitset = None
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
                f"'{full}' is used as {kind.__name__} and as {self._kinds[full].__name__} in one node."
            )
        carrier = self._types.carrier(self._ros, WIRE[kind].ros_type)
        try:
            return full, Topic(self._participant, f"rt{full}", carrier, Qos(self._types.PLAIN))
        except self._error as error:
            raise BusError(f"Topic '{full}' cannot be used as {WIRE[kind].ros_type}: {error}") from error

    def _ends(self) -> list[_Writer | _Reader]:
        return [*self._writers, *self._readers]

    def _attach(self, reader: _Reader) -> None:
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState

        reader.condition = ReadCondition(reader.dds, ViewState.Any | SampleState.Any | InstanceState.Any)
        self._waitset.attach(reader.condition)
        self._readers.append(reader)

    def _answer(self) -> None:
        """What services owe to clients that were not found at once."""
        for server in self._servers:
            if server.waits:
                server.send()

    def _wait(self, most_s: float) -> None:
        """Wait for messages, or so long, or 50 ms; queue what came, with the time at which it did."""
        idle_s = ASK_S if any(server.waits for server in self._servers) else IDLE_S
        lay_there = self._waitset.wait(0) > 0
        if not lay_there and min(idle_s, most_s) > 0.0:
            self._waitset.wait(int(min(idle_s, most_s) * 1e9))
        woke_s, unix_s, take = self.now(), time.time(), self._types.take
        # A message that lay there came after the last look: its sender's clock tells when, within that.
        earliest_s = self._polled_s if lay_there else woke_s
        for reader in self._readers:
            for cdr, info in take(reader.dds, 16):
                if info.valid_data:
                    age_s = unix_s - info.source_timestamp / 1e9
                    # What was latched before we asked for it came when we asked.
                    received_s = min(woke_s, max(earliest_s, reader.since_s, woke_s - age_s))
                    self._pending.append(partial(reader.take, cdr, info, received_s))
        self._polled_s = woke_s

    def _look(self, now_s: float) -> None:
        """Say what keeps messages from coming or going."""
        self._looked_s = now_s
        for end in self._ends():
            if (policy := end.mismatched()) is not None:
                self._warn(mismatch(end.topic, policy, isinstance(end, _Writer)))
        for reader in self._readers:
            if reader.watch is not None:
                matched = len(reader.dds.get_matched_publications())
                silent = reader.watch.look(now_s, matched, "" if matched else self._hint(reader.topic))
                if silent is not None:
                    self._warn(silent)

    def _hint(self, topic: str) -> str:
        """What is published that looks like `topic`."""
        from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication

        found = BuiltinDataReader(self._participant, BuiltinTopicDcpsPublication).read(1000)
        others = {end.topic_name[2:]: end.type_name for end in found if end.topic_name.startswith("rt/")}
        ours = next(reader.dds.topic.typename for reader in self._readers if reader.topic == topic)
        if topic in others:
            return f"it is published as {others[topic]}, not as {ours}" if others[topic] != ours else ""
        alike = [other for other, kind in others.items() if kind == ours]
        word = topic.rsplit("/", 1)[1]
        near = [other for other in alike if other.rsplit("/", 1)[1] == word] or get_close_matches(
            topic, alike
        )
        return f"did you mean '{near[0]}'? Check the namespace" if near else ""


class _Writer:
    def __init__(self, topic: str, dds: Any, reliable: bool, ends: Any = None) -> None:
        self.topic, self.dds, self.reliable, self.ends = topic, dds, reliable, ends

    def mismatched(self) -> int | None:
        status = self.dds.get_offered_incompatible_qos_status()
        return int(status.last_policy_id) if status.total_count_change > 0 else None

    def close(self) -> None:
        self.dds = None
        if self.ends is not None:
            self.ends.writer = self.ends.reader = None


class _Reader:
    def __init__(
        self, topic: str, dds: Any, take: Callable[[bytes, Any, float], None], watch: TopicWatch | None
    ) -> None:
        self.topic, self.dds, self.take, self.watch = topic, dds, take, watch
        self.since_s = time.monotonic()
        self.condition: Any = None

    def mismatched(self) -> int | None:
        status = self.dds.get_requested_incompatible_qos_status()
        return int(status.last_policy_id) if status.total_count_change > 0 else None

    def close(self) -> None:
        self.condition = self.dds = None
