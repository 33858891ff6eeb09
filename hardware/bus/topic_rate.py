"""Statistics of a topic's rate, periods and bytes over its newest messages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev


@dataclass(frozen=True, slots=True)
class TopicRate:
    """Statistics over `messages` messages. The rate uses the local clock, periods the publisher's clock."""

    messages: int
    rate_hz: float
    mean_s: float  # period, as min_s, max_s and std_s
    min_s: float
    max_s: float
    std_s: float
    bytes_s: float  # bytes per second

    def __str__(self) -> str:
        periods = ", ".join(
            f"{name} {1e3 * getattr(self, f'{name}_s'):.2f}" for name in ("mean", "min", "max", "std")
        )
        return (
            f"{self.rate_hz:.1f} Hz, period {periods} ms, {_bytes(self.bytes_s)}/s, over {self.messages} "
            "messages"
        )


class TopicRateMeter:
    """Collects the newest `window` messages."""

    def __init__(self, window: int) -> None:
        self._messages: deque[tuple[int, float, float, int]] = deque(maxlen=window)

    def add(self, writer: int, sent_s: float, received_s: float, size: int) -> None:
        """Add one message.

        writer: id of the publisher. sent_s: by the publisher's clock. received_s: by the local clock. size
        [bytes].
        """
        self._messages.append((writer, sent_s, received_s, size))

    def rate(self) -> TopicRate | None:
        """The statistics; None before the second message of one publisher.

        Periods are between messages of the same publisher and by its own clock, so that several publishers or
        a delay of this process do not look like jitter.
        """
        sent: dict[int, list[float]] = {}
        for writer, sent_s, _, _ in self._messages:
            sent.setdefault(writer, []).append(sent_s)
        periods_s = [later - earlier for times_s in sent.values() for earlier, later in pairwise(times_s)]
        span_s = self._messages[-1][2] - self._messages[0][2] if self._messages else 0.0
        if not periods_s or span_s <= 0.0:
            return None
        count, size = len(self._messages), sum(item[3] for item in self._messages) - self._messages[0][3]
        mean_s = fmean(periods_s)
        return TopicRate(
            count,
            (count - 1) / span_s,
            mean_s,
            min(periods_s),
            max(periods_s),
            pstdev(periods_s, mean_s),
            size / span_s,
        )


def _bytes(count: float) -> str:
    """Text in decimal units, such as "5.2 kB"."""
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
