"""Publishers of one topic, as rclpy knows them: by the graph of ROS, and by what a subscription has matched.

A middleware matches a publisher with a subscription before it delivers its first message. The graph
lags behind, and has no event in rclpy; it is looked at regularly for its names, and for publishers of topics
that the node does not subscribe to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

UNNAMED = "a publisher"  # matched, but not in the graph yet; or its node's name has left the graph already
_NO_NAME = "_NODE_NAME_UNKNOWN_"  # what ROS returns for a node whose name it does not know


class RosPublisherWatch:
    """Calls callback(names) when the publishers of `topic`, a full name, change."""

    def __init__(self, node: Any, topic: str, callback: Callable[[tuple[str, ...]], None]) -> None:
        self._node, self._topic, self._callback = node, topic, callback
        self._matched = 0  # publishers that this node's subscription had matched at the last look
        self._subscription: Any = None  # known from its first message on
        self._known: tuple[str, ...] | None = None

    def look(self) -> None:
        """Look at the graph, and report a change."""
        if self._subscription is not None:
            self._matched = self._subscription.get_publisher_count()
        found = self._node.get_publishers_info_by_topic(self._topic)
        names = sorted(map(_name, found))
        every = (*names, *[UNNAMED] * (self._matched - len(names)))
        if every != self._known:
            self._known = every
            self._callback(every)

    def on_message(self, subscription: Any) -> None:
        """Look before a message is handled, if the number of matched publishers has changed."""
        if not hasattr(subscription, "get_publisher_count"):  # of ROS 2 Humble
            return
        self._subscription = subscription
        if subscription.get_publisher_count() != self._matched:
            self.look()


def _name(end: Any) -> str:
    """Full name of the node of an endpoint."""
    return UNNAMED if end.node_name == _NO_NAME else f"{end.node_namespace.rstrip('/')}/{end.node_name}"
