"""The bus of nodes in one process, on one clock, virtual or real. With a virtual clock a run is the same
every time.

    world = World()                                  # virtual: an hour passes in the time that its callbacks take
    robot, policy = world.bus("sim_robot"), world.bus("arm_policy")
    ...                                              # make the nodes
    robot.spin(lambda: world.now() >= 10.0)          # whichever node spins, all of them run

Of the middleware it keeps what nodes can feel: keep-last depths, latched topics, sides whose quality of
service does not match, one callback at a time, deadlines that are skipped when missed. A message is delivered
after the callback that published it, at the same instant.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hardware.bus.names import namespace_of, nobody_offers, node_name, resolve
from hardware.bus.protocol import Answer, M, Profile
from hardware.bus.quality import QUALITY, Quality, mismatch
from hardware.bus.timers import Timers
from robo_rl.core.errors import BusError

_ASK_S = 0.05  # `until` is asked at least this often
_RELIABILITY, _DURABILITY = 11, 2  # DDS' numbers of what can keep two sides apart here


@dataclass
class _Subscription:
    node: str
    topic: str
    kind: type
    quality: Quality
    callback: Callable[[Any, float], None]
    queue: deque[Any] = field(default_factory=deque)


@dataclass
class _Publisher:
    node: str
    topic: str
    kind: type
    quality: Quality
    last: Any = None  # what a latched topic tells those who come later


class InProcessWorld:
    """Everything that nodes of one process share. `clock` and `sleep`: real ones, or none for virtual
    time.
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
        self._due: deque[_Subscription] = deque()  # one entry for each message that waits
        self._dead: set[str] = set()

    def bus(self, name: str, namespace: str = "") -> InProcessBus:
        """One node's bus. Raises BusError for a name that is taken or cannot be one."""
        full = f"{namespace_of(namespace)}/{node_name(name)}"
        if full in self._timers:
            raise BusError(f"There is a node '{full}' already; give this one another name or namespace.")
        self._timers[full] = Timers()
        return InProcessBus(self, name, namespace_of(namespace))

    def now(self) -> float:
        """Seconds; a virtual clock starts at 0 and moves only while somebody spins."""
        return self._now_s if self._clock is None else self._clock()

    def kill(self, name: str, namespace: str = "") -> None:
        """End a node as kill -9 would: from now on it hears nothing and says nothing."""
        self._dead.add(f"{namespace_of(namespace)}/{name}")

    def run(self, until: Callable[[], bool]) -> None:
        """Call nodes back until `until()`. Raises BusError when nothing is left that could make it true."""
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
            self._sleep(max(0.0, min(next_s - now_s, _ASK_S)))
        elif math.isinf(next_s):
            raise BusError(
                "Nothing is left to happen: no node has a timer, and what they wait for cannot come."
            )
        else:
            self._now_s = max(now_s, min(next_s, now_s + _ASK_S))

    def _deliver(self) -> bool:
        """Hand over the oldest message that waits; False when there is none."""
        while self._due:
            subscription = self._due.popleft()
            if subscription.queue and subscription.node not in self._dead:
                subscription.callback(subscription.queue.popleft(), self.now())
                return True
        return False

    def _post(self, publisher: _Publisher, message: Any) -> None:
        if publisher.node in self._dead:
            return
        if type(message) is not publisher.kind:
            found, expected = type(message).__name__, publisher.kind.__name__
            raise BusError(f"'{publisher.topic}' carries {expected}, found {found}: nothing was sent.")
        publisher.last = message if publisher.quality.latched else None
        for subscription in self._subscriptions:
            if (
                subscription.topic == publisher.topic
                and _fits(publisher.quality, subscription.quality) is None
            ):
                self._put(subscription, message)

    def _put(self, subscription: _Subscription, message: Any) -> None:
        if len(subscription.queue) >= subscription.quality.depth:
            subscription.queue.popleft()  # keep last: the oldest is lost, its turn goes to the newest
        else:
            self._due.append(subscription)
        subscription.queue.append(message)

    def _meet(self, publisher: _Publisher, subscription: _Subscription) -> None:
        """A publisher and a subscription of one topic have come together."""
        if publisher.topic != subscription.topic:
            return
        if publisher.kind is not subscription.kind:
            raise BusError(
                f"'{publisher.topic}' is {publisher.kind.__name__} to {publisher.node} and "
                f"{subscription.kind.__name__} to {subscription.node}: one of the two is started wrongly."
            )
        if (policy := _fits(publisher.quality, subscription.quality)) is not None:
            self._warn(mismatch(publisher.topic, policy, publishing=True))
        elif publisher.last is not None and subscription.quality.latched:
            self._put(subscription, publisher.last)


class InProcessBus:
    """One node's door to its world; see `hardware.bus.protocol.Bus`."""

    def __init__(self, world: InProcessWorld, name: str, namespace: str) -> None:
        self.world, self.name, self._namespace = world, name, namespace
        self._full = f"{namespace}/{name}"

    def now(self) -> float:
        return self.world.now()

    def stamp(self) -> float:
        return self.world.now() if self.world._clock is None else time.time()

    def publisher(self, topic: str, kind: type[M], profile: Profile) -> Callable[[M], None]:
        publisher = _Publisher(self._full, self._resolve(topic), kind, QUALITY[profile])
        for subscription in self.world._subscriptions:
            self.world._meet(publisher, subscription)
        self.world._publishers.append(publisher)
        return lambda message: self.world._post(publisher, message)

    def subscribe(
        self, topic: str, kind: type[M], profile: Profile, callback: Callable[[M, float], None]
    ) -> None:
        subscription = _Subscription(self._full, self._resolve(topic), kind, QUALITY[profile], callback)
        for publisher in self.world._publishers:
            self.world._meet(publisher, subscription)
        self.world._subscriptions.append(subscription)

    def timer(self, period_s: float, callback: Callable[[], None]) -> None:
        self.world._timers[self._full].add(period_s, callback, self.now())

    def service(self, name: str, callback: Callable[[], Answer]) -> None:
        full = self._resolve(name)
        if full in self.world._services:
            raise BusError(f"The service '{full}' is offered already, by {self.world._services[full][0]}.")
        self.world._services[full] = self._full, callback

    def call(self, name: str, timeout_s: float) -> Answer:
        full = self._resolve(name)
        owner, callback = self.world._services.get(full, ("", None))
        if callback is None or owner in self.world._dead:
            live = [name for name, (node, _) in self.world._services.items() if node not in self.world._dead]
            raise nobody_offers(full, live, 0.0)
        return callback()

    def spin(self, until: Callable[[], bool]) -> None:
        self.world.run(until)

    def close(self) -> None:
        while self.world._deliver():  # what was published before is still heard
            pass
        world, mine = self.world, self._full
        world._timers.pop(mine, None)
        world._subscriptions = [s for s in world._subscriptions if s.node != mine]
        world._publishers = [p for p in world._publishers if p.node != mine]
        world._services = {name: row for name, row in world._services.items() if row[0] != mine}

    def _resolve(self, name: str) -> str:
        return resolve(name, self._namespace, self.name)


def _fits(offered: Quality, asked: Quality) -> int | None:
    """None, or the policy that keeps the two apart."""
    if asked.asks_reliable and not offered.offers_reliable:
        return _RELIABILITY
    return _DURABILITY if asked.latched and not offered.latched else None
