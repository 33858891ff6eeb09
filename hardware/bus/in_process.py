"""Bus for nodes of one process, with a virtual or a real clock. With a virtual clock runs are deterministic.

    world = InProcessWorld()                         # virtual time: runs as fast as its callbacks
    robot, policy = world.bus("sim_robot"), world.bus("arm_policy")
    ...                                              # make the nodes
    robot.spin(lambda: world.now() >= 10.0)          # runs the callbacks of all nodes

It reproduces the behaviour of the middleware that nodes depend on: keep-last depths, latched topics,
mismatched qualities of service, one callback at a time, and missed deadlines that are skipped. A message is
delivered after the callback that published it, at the same time.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from hardware.bus.names import namespace_of, node_name, resolve, unknown_service
from hardware.bus.protocol import Answer, M, Profile
from hardware.bus.quality import QUALITY, Quality, mismatch
from hardware.bus.timers import Timers
from hardware.bus.wire import check_shapes
from hardware.messages import Message
from robo_rl.core.errors import BusError

_CHECK_S = 0.05  # largest time between two checks of `until`
_RELIABILITY = 11  # id of this policy in DDS


@dataclass
class _Subscription:
    node: str
    topic: str
    kind: type
    quality: Quality
    callback: Callable[[Any, float, int], None]
    depth: float
    queue: deque[tuple[Any, float, int]] = field(default_factory=deque)  # (message, receipt [s], sender)


@dataclass
class _Publisher:
    node: str
    topic: str
    kind: type
    quality: Quality
    sender: int
    last: Any = None  # message of a latched topic for late subscribers


class InProcessWorld:
    """State shared by the nodes of one process.

    clock, sleep: of real time; without a clock, time is virtual. warn: called with warnings, such as for
    mismatched qualities of service.
    """

    def __init__(
        self,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._clock, self._sleep, self._warn = clock, sleep, warn
        self._now_s = 0.0
        self._timers: dict[str, Timers] = {}
        self._subscriptions: list[_Subscription] = []
        self._publishers: list[_Publisher] = []
        self._services: dict[str, tuple[str, Callable[[], Answer]]] = {}
        self._publisher_watches: list[tuple[str, str, Callable[[list[_Publisher]], None]]] = []
        self._senders = count()
        self._due: deque[_Subscription] = deque()  # one entry per queued message
        self._dead: set[str] = set()

    def bus(self, name: str, namespace: str = "") -> InProcessBus:
        """The bus of a new node. Raises BusError for a name that is taken or not allowed."""
        full = f"{namespace_of(namespace)}/{node_name(name)}"
        if full in self._timers:
            raise BusError(f"There is a node '{full}' already; choose another name or namespace.")
        self._timers[full] = Timers()
        return InProcessBus(self, name, namespace_of(namespace))

    def now(self) -> float:
        """Time [s]. A virtual clock starts at 0 and advances only in `run`."""
        return self._now_s if self._clock is None else self._clock()

    def kill(self, name: str, namespace: str = "") -> None:
        """End a node as kill -9 does: from now on it receives and publishes nothing."""
        self._dead.add(f"{namespace_of(namespace)}/{name}")
        self._tell_publishers()

    def run(self, until: Callable[[], bool]) -> None:
        """Run the callbacks of all nodes until `until()` is true.

        Raises BusError when no timer and no message is left that could make it true.
        """
        while not until():
            if self._deliver():
                continue
            now_s = self.now()
            ready = [callback for node, timers in self._timers.items() if node not in self._dead
                     for callback in timers.due(now_s)]  # fmt: skip
            for callback in ready:
                callback()
                while self._deliver():
                    pass
                if until():
                    return
            if not ready:
                self._wait(now_s)

    def _wait(self, now_s: float) -> None:
        next_s = min(
            (t.next_s() for node, t in self._timers.items() if node not in self._dead), default=math.inf
        )
        if self._clock is not None:
            self._sleep(max(0.0, min(next_s - now_s, _CHECK_S)))
        elif math.isinf(next_s):
            raise BusError("No node has a timer or a queued message, so the awaited condition cannot occur.")
        else:
            self._now_s = max(now_s, min(next_s, now_s + _CHECK_S))

    def _deliver(self) -> bool:
        """Deliver the oldest queued message; False when there is none."""
        while self._due:
            subscription = self._due.popleft()
            if subscription.queue and subscription.node not in self._dead:
                subscription.callback(*subscription.queue.popleft())
                return True
        return False

    def _post(self, publisher: _Publisher, message: Any) -> None:
        if publisher.node in self._dead:
            return
        if type(message) is not publisher.kind:
            found, expected = type(message).__name__, publisher.kind.__name__
            raise BusError(f"'{publisher.topic}' carries {expected}, found {found}: nothing was sent.")
        check_shapes(cast(Message, message))
        publisher.last = message if publisher.quality.latched else None
        for subscription in self._subscriptions:
            if (
                subscription.topic == publisher.topic
                and _fits(publisher.quality, subscription.quality) is None
            ):
                self._put(subscription, message, publisher.sender)

    def _tell_publishers(self, topic: str = "") -> None:
        """Tell the watches of one topic, or of all, who publishes now."""
        for node, watched, callback in self._publisher_watches:
            if topic in ("", watched) and node not in self._dead:
                callback(self._live_publishers(watched))

    def _live_publishers(self, topic: str) -> list[_Publisher]:
        return [each for each in self._publishers if each.topic == topic and each.node not in self._dead]

    def _put(self, subscription: _Subscription, message: Any, sender: int) -> None:
        if len(subscription.queue) >= subscription.depth:
            subscription.queue.popleft()  # keep last: the newest message replaces the oldest
        else:
            self._due.append(subscription)
        subscription.queue.append((message, self.now(), sender))

    def _match(self, publisher: _Publisher, subscription: _Subscription) -> None:
        """Check the types and qualities of a new pair, and deliver the latched message."""
        if publisher.topic != subscription.topic:
            return
        if publisher.kind is not subscription.kind:
            raise BusError(
                f"{publisher.node} uses '{publisher.topic}' as {publisher.kind.__name__} and "
                f"{subscription.node} as {subscription.kind.__name__}. Check how the two are started."
            )
        if (policy := _fits(publisher.quality, subscription.quality)) is not None:
            self._warn(mismatch(publisher.topic, policy, publishing=True))
        elif publisher.last is not None and subscription.quality.latched:
            self._put(subscription, publisher.last, publisher.sender)


class InProcessBus:
    """Connection of one node to an `InProcessWorld`; see `hardware.bus.protocol.Bus`."""

    discovery_s = 0.0

    def __init__(self, world: InProcessWorld, name: str, namespace: str) -> None:
        self.world, self.name, self.namespace = world, name, namespace
        self._full = f"{namespace}/{name}"

    def now(self) -> float:
        return self.world.now()

    def stamp(self) -> float:
        return self.world.now() if self.world._clock is None else time.time()

    def publisher(self, topic: str, kind: type[M], profile: Profile) -> Callable[[M], None]:
        sender = next(self.world._senders)
        publisher = _Publisher(self._full, self._resolve(topic), kind, QUALITY[profile], sender)
        for subscription in self.world._subscriptions:
            self.world._match(publisher, subscription)
        self.world._publishers.append(publisher)
        self.world._tell_publishers(publisher.topic)
        return lambda message: self.world._post(publisher, message)

    def subscribe(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        self._subscribe(topic, kind, profile, lambda m, at, _: callback(m, at), QUALITY[profile].depth)

    def subscribe_all(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        """See `CompleteBus.subscribe_all`."""
        self._subscribe(topic, kind, profile, lambda m, at, _: callback(m, at), math.inf)

    def subscribe_senders(
        self,
        topic: str,
        kind: type[M],
        profile: Profile,
        on_message: Callable[[M, float, int], None],
        on_senders: Callable[[frozenset[int]], None],
    ) -> None:
        """See `SenderBus.subscribe_senders`."""
        self._watch(topic, lambda living: on_senders(frozenset(each.sender for each in living)))
        self._subscribe(topic, kind, profile, on_message, math.inf)

    def _subscribe(
        self,
        topic: str,
        kind: type[M],
        profile: Profile,
        callback: Callable[[M, float, int], None],
        depth: float,
    ) -> None:
        full = self._resolve(topic)
        subscription = _Subscription(self._full, full, kind, QUALITY[profile], callback, depth)
        for publisher in self.world._publishers:
            self.world._match(publisher, subscription)
        self.world._subscriptions.append(subscription)

    def watch_publishers(self, topic: str, callback: Callable[[tuple[str, ...]], None]) -> None:
        self._watch(topic, lambda living: callback(tuple(each.node for each in living)))

    def _watch(self, topic: str, callback: Callable[[list[_Publisher]], None]) -> None:
        full = self._resolve(topic)
        self.world._publisher_watches.append((self._full, full, callback))
        callback(self.world._live_publishers(full))

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        self.world._timers[self._full].add(period_s, callback, self.now())

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        full = self._resolve(name)
        if full in self.world._services:
            raise BusError(f"The service '{full}' is already offered by {self.world._services[full][0]}.")
        self.world._services[full] = self._full, callback

    def call(self, name: str, timeout_s: float) -> Answer:
        full = self._resolve(name)
        owner, callback = self.world._services.get(full, ("", None))
        if callback is None or owner in self.world._dead:
            live = [name for name, (node, _) in self.world._services.items() if node not in self.world._dead]
            raise unknown_service(full, live, 0.0)
        return callback()

    def spin(self, until: Callable[[], bool]) -> None:
        self.world.run(until)

    def close(self) -> None:
        while self.world._deliver():  # published messages are still delivered
            pass
        world, mine = self.world, self._full
        world._timers.pop(mine, None)
        world._subscriptions = [s for s in world._subscriptions if s.node != mine]
        world._publishers = [p for p in world._publishers if p.node != mine]
        world._publisher_watches = [row for row in world._publisher_watches if row[0] != mine]
        world._services = {name: row for name, row in world._services.items() if row[0] != mine}
        world._tell_publishers()

    def _resolve(self, name: str) -> str:
        return resolve(name, self.namespace, self.name)


def _fits(offered: Quality, requested: Quality) -> int | None:
    """None if the two match, otherwise the id of the DDS policy that differs."""
    reliable = any(not qos.reliable for qos in requested.requested()) or offered.offers_reliable
    return None if reliable else _RELIABILITY
