"""Ends of topics on the DDS bus: what is published and subscribed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from hardware.bus.watch import TopicWatch

TAKEN = 16  # requests of a service, or messages, that are taken at a time at least
BATCH = 256  # messages that are taken in one call at most: the binding allocates memory for so many


class DdsWriter:
    """One publisher, or the sending end of a service (`ends`)."""

    def __init__(self, topic: str, dds: Any, reliable: bool, ends: Any = None) -> None:
        self.topic, self.dds, self.reliable, self.ends = topic, dds, reliable, ends

    def mismatched(self) -> int | None:
        status = self.dds.get_offered_incompatible_qos_status()
        return int(status.last_policy_id) if status.total_count_change > 0 else None

    def close(self) -> None:
        self.dds = None
        if self.ends is not None:
            self.ends.writer = self.ends.reader = None


class DdsReader:
    """One subscription. depth: length of its queue; recorded: a recorder counts when the queue was full."""

    def __init__(
        self,
        topic: str,
        dds: Any,
        on_sample: Callable[[bytes, Any, float], None],
        watch: TopicWatch | None,
        first: bool = True,
        depth: int = 1,
        recorded: bool = False,
    ) -> None:
        self._most = max(depth, TAKEN)
        # Queue length of the recorder's states and commands, and how often the queue was found full.
        self._counted, self.overruns = depth if recorded and depth > BATCH else math.inf, 0
        self.topic, self.dds, self.on_sample, self.watch, self.first = topic, dds, on_sample, watch, first
        self.since_s = time.monotonic()
        self.condition: Any = None

    def take(self, take: Callable[[Any, int], list[Any]]) -> list[Any]:
        """All samples that are there: one that is left behind would look later than it came."""
        taken = take(self.dds, batch := min(BATCH, self._most))
        while batch <= len(taken) < self._most:
            more = take(self.dds, batch)
            taken += more
            if len(more) < batch:
                break
        self.overruns += len(taken) >= self._counted
        return taken

    def mismatched(self) -> int | None:
        status = self.dds.get_requested_incompatible_qos_status()
        return int(status.last_policy_id) if self.first and status.total_count_change > 0 else None

    def close(self) -> None:
        self.condition = self.dds = None
