"""`robo-rl topic list`: every topic on the bus, its type, and the nodes at its ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from itertools import groupby

from hardware.bus.dds_onlooker import End, Onlooker
from hardware.bus.names import namespace_of
from robo_rl.conf.topic import TopicListConfig
from robo_rl.core.errors import BusError


def main(config: TopicListConfig) -> None:
    """Print them, aligned. Raises BusError where there is nobody."""
    below = f"{namespace_of(config.namespace)}/"
    with closing(Onlooker()) as onlooker:
        time.sleep(config.wait_s)
        ends = onlooker.ends()
        if not ends:
            raise BusError(onlooker.silence())
    shown = [end for end in ends if end.topic.startswith(below)]
    if not shown:
        raise BusError(f"No topic lies below '{below}'. There are: {', '.join(sorted({end.topic for end in ends}))}.")
    rows = [_row(topic, list(group)) for topic, group in groupby(shown, key=lambda end: end.topic)]
    rows.insert(0, ("topic", "type", "published by", "heard by"))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print("  ".join((*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[3])).rstrip())


def _row(topic: str, ends: Sequence[End]) -> tuple[str, str, str, str]:
    types = ", ".join(sorted({end.ros_type for end in ends}))
    return topic, types, _nodes(ends, publish=True), _nodes(ends, publish=False)


def _nodes(ends: Sequence[End], publish: bool) -> str:
    return ", ".join(dict.fromkeys(end.node or "no node" for end in ends if end.publishes is publish)) or "-"
