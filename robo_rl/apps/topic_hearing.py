"""What `topic echo` and `topic hz` share: find one topic, then hand on what comes, until the time is over or Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from hardware.bus.dds_onlooker import Heard, Onlooker
from hardware.bus.names import namespace_of, resolve
from robo_rl.conf.topic import TopicEchoConfig, TopicHzConfig

WAIT_S = 0.05  # the longest wait between two calls of `take`

Take = Callable[[Onlooker, str, Sequence[Heard]], bool]


def hear(config: TopicEchoConfig | TopicHzConfig, take: Take) -> None:
    """take(onlooker, ROS type, what came, at times nothing) until it says false. Raises BusError as Onlooker does."""
    topic, count = resolve(config.topic, namespace_of(config.namespace), ""), 0
    end_s = float("inf") if config.seconds is None else time.monotonic() + config.seconds
    with closing(Onlooker()) as onlooker:
        ends = onlooker.find(topic, config.wait_s)
        with closing(onlooker.hear(ends)) as ear:
            if not any(end.publishes for end in ends):
                print(f"robo-rl: nobody publishes '{topic}' yet; waiting for who does.", file=sys.stderr, flush=True)
            try:
                going = True
                while going and time.monotonic() < end_s:
                    heard = list(ear.take(min(WAIT_S, max(0.0, end_s - time.monotonic()))))
                    count += len(heard)
                    going = take(onlooker, ends[0].ros_type, heard)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(f"{count} messages of '{topic}' came") from None
