"""How regularly a topic comes: rate, periods and bytes over its newest messages."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pstdev


@dataclass(frozen=True, slots=True)
class Pace:
    """Over `messages` messages: how many came in a second by our clock; periods by the clock of who sent
    them.
    """

    messages: int
    rate_hz: float
    mean_s: float
    min_s: float
    max_s: float
    std_s: float
    bytes_s: float

    def __str__(self) -> str:
        periods = ", ".join(
            f"{name} {1e3 * getattr(self, f'{name}_s'):.2f}" for name in ("mean", "min", "max", "std")
        )
        return f"{self.rate_hz:.1f} Hz, period {periods} ms, {_bytes(self.bytes_s)}/s, over {self.messages} messages"


class PaceMeter:
    """Remembers the newest `window` messages."""

    def __init__(self, window: int) -> None:
        self._heard: deque[tuple[int, float, float, int]] = deque(maxlen=window)

    def hear(self, writer: int, sent_s: float, received_s: float, size: int) -> None:
        """writer: whose clock sent_s is of; received_s: by ours; size [bytes]."""
        self._heard.append((writer, sent_s, received_s, size))

    def pace(self) -> Pace | None:
        """None before the second message of one publisher.

        Periods are between messages of one publisher and by its own clock, so that neither a second publisher
        nor our own hiccups look like its jitter.
        """
        sent: dict[int, list[float]] = {}
        for writer, sent_s, _, _ in self._heard:
            sent.setdefault(writer, []).append(sent_s)
        gaps_s = [later - earlier for times_s in sent.values() for earlier, later in pairwise(times_s)]
        span_s = self._heard[-1][2] - self._heard[0][2] if self._heard else 0.0
        if not gaps_s or span_s <= 0.0:
            return None
        count, size = len(self._heard), sum(row[3] for row in self._heard) - self._heard[0][3]
        mean_s = fmean(gaps_s)
        return Pace(
            count,
            (count - 1) / span_s,
            mean_s,
            min(gaps_s),
            max(gaps_s),
            pstdev(gaps_s, mean_s),
            size / span_s,
        )


def _bytes(count: float) -> str:
    """In decimal units: 5.2 kB."""
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
