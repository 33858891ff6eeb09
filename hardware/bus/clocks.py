"""Two clocks read together: stamps (Unix or ROS time) for times of receipt on the monotonic clock.

Read one after the other, two clocks differ by however long the program was interrupted in between; messages
stamped so change places. Here a reading of the other clock lies between two of the monotonic one, and bounds
their true offset. One offset is used as long as it lies within those bounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

TRIES = 8  # readings at the start, of which the tightest counts
SLACK_S = 1e-4  # by which an offset may lie outside the bounds before it is replaced


class ClockOffset:
    """Offset of a clock to the monotonic clock. `update` replaces it only when the clock was set.

    clock: Unix time, or ROS time, which may be a simulator's and run at another rate. monotonic: of receipts.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._monotonic = clock, monotonic
        low_s, high_s = min((self._bounds() for _ in range(TRIES)), key=lambda bounds: bounds[1] - bounds[0])
        self.offset_s = 0.5 * (low_s + high_s)  # add it to a monotonic time

    def update(self) -> float:
        """The offset [s], after a look at whether it still holds."""
        low_s, high_s = self._bounds()
        if not low_s - SLACK_S <= self.offset_s <= high_s + SLACK_S:
            self.offset_s = 0.5 * (low_s + high_s)
        return self.offset_s

    def _bounds(self) -> tuple[float, float]:
        """The offset lies between these, however long this takes."""
        before_s = self._monotonic()
        clock_s = self._clock()
        return clock_s - self._monotonic(), clock_s - before_s


class ReceiptStamps:
    """Stamps [ns] of messages by their times of receipt: never in another order than those.

    Where the clock was set back, stamps stand still until it has caught up.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._offset = ClockOffset(clock, monotonic)
        self._newest_s, self._newest_ns = -math.inf, 0

    def stamp_ns(self, received_s: float) -> int:
        """Stamp of a message that was received at this monotonic time."""
        stamp_ns = round(self._offset.update() * 1e9) + round(received_s * 1e9)
        if received_s < self._newest_s:
            return min(stamp_ns, self._newest_ns)
        stamp_ns = stamp_ns if self._newest_s == -math.inf else max(stamp_ns, self._newest_ns)
        self._newest_s, self._newest_ns = received_s, stamp_ns
        return stamp_ns
