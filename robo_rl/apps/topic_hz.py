"""`robo-rl topic hz`: how often one topic comes, how regularly and how much of it; one line a second."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hardware.bus.dds_onlooker import Heard, Onlooker
from hardware.bus.pace import PaceMeter
from robo_rl.apps.topic_hearing import hear
from robo_rl.conf.topic import TopicHzConfig

LINE_S = 1.0


def main(config: TopicHzConfig) -> None:
    """Print until the time is over, with a last line then, or until Ctrl-C."""
    meter, last_s, line_s, new = PaceMeter(config.window), time.monotonic(), time.monotonic() + LINE_S, 0

    def take(onlooker: Onlooker, ros_type: str, heard: Sequence[Heard]) -> bool:
        nonlocal last_s, line_s, new
        for one in heard:
            meter.hear(one.writer, one.sent_s, one.received_s, len(one.cdr))
            last_s = one.received_s
        new += len(heard)
        if (now_s := time.monotonic()) >= line_s:
            print(_line(meter, new, now_s - last_s), flush=True)
            line_s, new = now_s + LINE_S, 0
        return True

    hear(config, take)
    print(_line(meter, new, time.monotonic() - last_s))


def _line(meter: PaceMeter, new: int, silent_s: float) -> str:
    """Of what came since the last line, and before."""
    pace = meter.pace()
    if new == 0:
        return f"silent for {silent_s:.1f} s" + (f"; before: {pace}" if pace else "")
    return str(pace) if pace else "one message so far"
