"""Fixed-rate loops with absolute deadlines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from robo_rl.core.errors import ConfigError


def ticks(
    rate_hz: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[float]:
    """Yield the delay of each tick [s]. Deadlines are absolute, so errors do not accumulate.

    After an overrun, the loop continues at once with the newest deadline that has passed and skips those
    before it. Raises ConfigError, at the first tick, if the rate is not positive and finite.
    """
    if not 0.0 < rate_hz < math.inf:
        raise ConfigError(f"The rate must be positive and finite, found {rate_hz} Hz.")
    period_s, start_s, i = 1.0 / rate_hz, clock(), 0
    while True:
        deadline_s = start_s + i * period_s
        if (wait_s := deadline_s - clock()) > 0:
            sleep(wait_s)
        yield max(0.0, clock() - deadline_s)
        i = max(i + 1, int((clock() - start_s) / period_s))
