"""`robo-rl topic list|info|echo|hz`: topics of running nodes, observed over DDS without ROS."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import groupby

from hardware.bus.dds.introspection import Endpoint, ReceivedMessage, TopicIntrospector
from hardware.bus.names import namespace_of, resolve
from hardware.bus.readable import readable
from hardware.bus.topic_rate import TopicRateMeter
from robo_rl.conf.up import TopicEchoConfig, TopicHzConfig, TopicInfoConfig, TopicListConfig
from robo_rl.core.errors import BusError, BusNameError

LINE_S = 1.0  # interval of the lines of `topic hz`
WAIT_S = 0.05  # longest interval between two calls of `take`

Take = Callable[[TopicIntrospector, str, Sequence[ReceivedMessage]], bool]


def list_topics(config: TopicListConfig) -> None:
    """Print the topics, aligned. Raises BusError if there is none."""
    below = f"{namespace_of(config.namespace)}/"
    with closing(TopicIntrospector()) as introspector:
        time.sleep(config.wait_s)
        ends = introspector.endpoints()
        if not ends:
            raise BusError(introspector.no_nodes_message())
    shown = [end for end in ends if end.topic.startswith(below)]
    if not shown:
        raise BusNameError(
            f"There is no topic below '{below}'. Topics: {', '.join(sorted({end.topic for end in ends}))}."
        )
    rows = [_row(topic, list(group)) for topic, group in groupby(shown, key=lambda end: end.topic)]
    rows.insert(0, ("topic", "type", "published by", "heard by"))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print(
            "  ".join(
                (*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[3])
            ).rstrip()
        )


def info(config: TopicInfoConfig) -> None:
    """Print the topic's endpoints, publishers first. Raises BusError for an unknown topic."""
    topic = resolve(config.topic, namespace_of(config.namespace), "")
    with closing(TopicIntrospector()) as introspector:
        ends = introspector.find(topic, config.wait_s)
    print(f"{topic}: {', '.join(sorted({end.ros_type for end in ends}))}")
    for publishes, title in ((True, "published by"), (False, "heard by")):
        words = [_words(end) for end in ends if end.publishes is publishes]
        print(f"{title}:{'' if words else ' nobody'}")
        for word in words:
            print(f"  {word}")


def echo(config: TopicEchoConfig) -> None:
    """Print messages until the count or time is reached, or until Ctrl-C."""
    left = config.count

    def take(introspector: TopicIntrospector, ros_type: str, heard: Sequence[ReceivedMessage]) -> bool:
        nonlocal left
        for one in heard[:left]:
            print(f"{readable(introspector.read(one, ros_type), config.cut)}\n---", flush=True)
        left = None if left is None else max(0, left - len(heard))
        return left != 0

    _receive(config, take)


def hz(config: TopicHzConfig) -> None:
    """Print rates until the time is reached, with a last line, or until Ctrl-C."""
    meter, last_s, line_s, new = TopicRateMeter(config.window), time.monotonic(), time.monotonic() + LINE_S, 0

    def take(introspector: TopicIntrospector, ros_type: str, heard: Sequence[ReceivedMessage]) -> bool:
        nonlocal last_s, line_s, new
        for one in heard:
            meter.add(one.writer, one.sent_s, one.received_s, len(one.cdr))
            last_s = one.received_s
        new += len(heard)
        if (now_s := time.monotonic()) >= line_s:
            print(_line(meter, new, now_s - last_s), flush=True)
            line_s, new = now_s + LINE_S, 0
        return True

    _receive(config, take)
    print(_line(meter, new, time.monotonic() - last_s))


def _row(topic: str, ends: Sequence[Endpoint]) -> tuple[str, str, str, str]:
    types = ", ".join(sorted({end.ros_type for end in ends}))
    return topic, types, _nodes(ends, publish=True), _nodes(ends, publish=False)


def _nodes(ends: Sequence[Endpoint], publish: bool) -> str:
    return ", ".join(dict.fromkeys(end.node or "no node" for end in ends if end.publishes is publish)) or "-"


def _words(end: Endpoint) -> str:
    kept = "transient local" if end.latched else "volatile"
    sent = "reliable" if end.reliable else "best effort"
    return f"{end.node or 'a participant that is no node'} ({sent}, {kept})"


def _line(meter: TopicRateMeter, new: int, silent_s: float) -> str:
    """Line on the messages since the last line; if there was none, on those before."""
    rate = meter.rate()
    if new == 0:
        return f"silent for {silent_s:.1f} s" + (f"; before: {rate}" if rate else "")
    return str(rate) if rate else "one message so far"


def _receive(config: TopicEchoConfig | TopicHzConfig, take: Take) -> None:
    """Call take(introspector, ROS type, new messages, possibly none) until it returns False.

    Raises BusError as the introspector does.
    """
    topic, count = resolve(config.topic, namespace_of(config.namespace), ""), 0
    end_s = float("inf") if config.seconds is None else time.monotonic() + config.seconds
    with closing(TopicIntrospector()) as introspector:
        ends = introspector.find(topic, config.wait_s)
        with closing(introspector.listen(ends)) as ear:
            if not any(end.publishes for end in ends):
                print(
                    f"robo-rl: '{topic}' has no publisher yet; waiting.",
                    file=sys.stderr,
                    flush=True,
                )
            try:
                going = True
                while going and time.monotonic() < end_s:
                    heard = list(ear.take(min(WAIT_S, max(0.0, end_s - time.monotonic()))))
                    count += len(heard)
                    going = take(introspector, ends[0].ros_type, heard)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(f"{count} messages of '{topic}' came") from None
