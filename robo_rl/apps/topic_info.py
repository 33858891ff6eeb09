"""`robo-rl topic info`: the type of one topic, and each of its ends with its quality of service."""

from __future__ import annotations

from contextlib import closing

from hardware.bus.dds_onlooker import End, Onlooker
from hardware.bus.names import namespace_of, resolve
from robo_rl.conf.topic import TopicInfoConfig


def main(config: TopicInfoConfig) -> None:
    """Print them, publishers first. Raises BusError for a topic that nobody has."""
    topic = resolve(config.topic, namespace_of(config.namespace), "")
    with closing(Onlooker()) as onlooker:
        ends = onlooker.find(topic, config.wait_s)
    print(f"{topic}: {', '.join(sorted({end.ros_type for end in ends}))}")
    for publishes, title in ((True, "published by"), (False, "heard by")):
        words = [_words(end) for end in ends if end.publishes is publishes]
        print(f"{title}:{'' if words else ' nobody'}")
        for word in words:
            print(f"  {word}")


def _words(end: End) -> str:
    kept = "transient local" if end.latched else "volatile"
    return f"{end.node or 'a participant that is no node'} ({'reliable' if end.reliable else 'best effort'}, {kept})"
