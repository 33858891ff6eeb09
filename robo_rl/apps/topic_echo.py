"""`robo-rl topic echo`: the messages of one topic as readable text, each ended by a line of three dashes."""

from __future__ import annotations

from collections.abc import Sequence

from hardware.bus.dds_onlooker import Heard, Onlooker
from hardware.bus.readable import readable
from robo_rl.apps.topic_hearing import hear
from robo_rl.conf.topic import TopicEchoConfig


def main(config: TopicEchoConfig) -> None:
    """Print until the count is full, the time is over, or Ctrl-C."""
    left = config.count

    def take(onlooker: Onlooker, ros_type: str, heard: Sequence[Heard]) -> bool:
        nonlocal left
        for one in heard[:left]:
            print(f"{readable(onlooker.read(one, ros_type), config.cut)}\n---", flush=True)
        left = None if left is None else max(0, left - len(heard))
        return left != 0

    hear(config, take)
