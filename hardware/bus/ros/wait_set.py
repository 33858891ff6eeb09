"""Waits for messages and requests of one rclpy node, in a wait set that is kept.

For every callback, rclpy's SingleThreadedExecutor makes a new wait set of all entities, in Python, and wakes
up twice. At some hundred callbacks per second this takes most of the CPU time of a node. Here subscriptions
are taken directly. Rare work is left to the executor: services, clients, actions, and events such as a
mismatch of qualities of service, which are checked once per second.

rclpy's EventsExecutor (Kilted, Jazzy since 7.1.4) is not used: it is experimental, and it replaces the
handlers of SIGINT and SIGTERM, by which a node stops its robot.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_BATCH = 16  # messages of one subscription that are taken at a time
_CALLBACKS = 8  # most callbacks of futures after one piece of rare work


class RosWaitSet:
    """Waits on behalf of a node that has been added to `executor`.

    Call `changed` after the node got another publisher, subscription, service or client. Raises ImportError
    or AttributeError where this rclpy has no such wait set.
    """

    def __init__(self, context: Any, node: Any, executor: Any) -> None:
        from rclpy.impl.implementation_singleton import rclpy_implementation

        self._make_set = rclpy_implementation.WaitSet
        self._context, self._node, self._executor = context, node, executor
        self._set: Any = None
        self._subscriptions: dict[int, Callable[[], Iterator[Callable[[], None]]]] = {}
        self._add: list[Callable[[], object]] = []
        self._rare: list[str] = []
        self._waitables: list[Any] = []

    def changed(self) -> None:
        """Make a new wait set before the next wait."""
        self._set = None

    def wait(self, timeout_s: float) -> list[Callable[[], None]]:
        """Wait for at most `timeout_s`; returns a callback for each message.

        Requests and other rare work are done by the executor meanwhile, one of them per call.
        """
        if self._set is None:
            self._build()
        wait_set = self._set
        wait_set.clear_entities()
        for add in self._add:
            add()
        for waitable in self._waitables:
            waitable.add_to_wait_set(wait_set)
        wait_set.wait(max(0, int(timeout_s * 1e9)))
        callbacks = [
            callback
            for pointer in wait_set.get_ready_entities("subscription")
            if pointer in self._subscriptions
            for callback in self._subscriptions[pointer]()
        ]
        rare = any(wait_set.get_ready_entities(kind) for kind in self._rare)
        if rare or any(waitable.is_ready(wait_set) for waitable in self._waitables):
            self._do_rare_work()
            self.changed()  # a request may have added entities, such as the subscription of /clock
        return callbacks

    def _do_rare_work(self) -> None:
        """Do one piece of work and the callbacks of the futures that it completes, which wake up no wait set.

        Where this rclpy keeps them elsewhere, `check_events` does them.
        """
        self._executor.spin_once(timeout_sec=0.0)
        for _ in range(_CALLBACKS):
            if not getattr(self._executor, "_tasks", ()):
                return
            self._executor.spin_once(timeout_sec=0.0)

    def check_events(self) -> None:
        """Handle one event of a publisher or subscription; the next one at the next call."""
        self._executor.spin_once(timeout_sec=0.0)

    def close(self) -> None:
        """Release the wait set, so that the node can be destroyed."""
        self._set, self._add, self._subscriptions = None, [], {}

    def _build(self) -> None:
        node = self._node
        subscriptions = list(node.subscriptions)
        groups: dict[str, list[Any]] = {
            "service": list(node.services),
            "client": list(node.clients),
            "timer": list(node.timers),
            "guard_condition": list(node.guards),
        }
        self._rare = [kind for kind, entities in groups.items() if entities]
        self._waitables = [waitable for waitable in node.waitables if not _is_event(waitable)]
        more = [waitable.get_num_entities() for waitable in self._waitables]
        self._set = self._make_set(
            len(subscriptions) + sum(each.num_subscriptions for each in more),
            len(groups["guard_condition"]) + sum(each.num_guard_conditions for each in more),
            len(groups["timer"]) + sum(each.num_timers for each in more),
            len(groups["client"]) + sum(each.num_clients for each in more),
            len(groups["service"]) + sum(each.num_services for each in more),
            sum(each.num_events for each in more),
            self._context.handle,
        )
        self._subscriptions = {each.handle.pointer: _taker(each) for each in subscriptions}
        self._add = [partial(self._set.add_subscription, each.handle) for each in subscriptions]
        for kind, entities in groups.items():
            self._add += [partial(getattr(self._set, f"add_{kind}"), each.handle) for each in entities]


class ExecutorWaits:
    """The same by the executor alone, which works with every rclpy and takes several times the CPU time."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor

    def changed(self) -> None:
        """Do nothing: the executor collects the entities at every wait."""

    def wait(self, timeout_s: float) -> list[Callable[[], None]]:
        """Let the executor run one callback, within `timeout_s`; returns none."""
        self._executor.spin_once(timeout_sec=max(0.0, timeout_s))
        return []

    def check_events(self) -> None:
        """Do nothing: the executor handles events as they come."""

    def close(self) -> None:
        """Do nothing."""


def wait_set_of(
    context: Any, node: Any, executor: Any, warn: Callable[[str], object]
) -> RosWaitSet | ExecutorWaits:
    """Waits for `node`: in a wait set, or by the executor where this rclpy has none; then it warns."""
    try:
        return RosWaitSet(context, node, executor)
    except (ImportError, AttributeError) as error:
        warn(f"This rclpy has no wait set for this program ({error}): the node needs more CPU time.")
        return ExecutorWaits(executor)


def _taker(subscription: Any) -> Callable[[], Iterator[Callable[[], None]]]:
    """A function that takes the messages of a subscription; it gives a callback for each."""
    take, callback = subscription.handle.take_message, subscription.callback
    kind, raw = subscription.msg_type, subscription.raw
    arguments = len(inspect.signature(callback).parameters)  # the message, and information about it

    def taken() -> Iterator[Callable[[], None]]:
        for _ in range(_BATCH):
            if (found := take(kind, raw)) is None:
                return
            yield partial(callback, *found[:arguments])

    return taken


def _is_event(waitable: Any) -> bool:
    """True for the events of a publisher or subscription."""
    return type(waitable).__name__ in ("EventHandler", "QoSEventHandler")  # Jazzy, Humble
