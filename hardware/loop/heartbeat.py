"""Whether the policy of an action head lives, by its heartbeats; time is an argument.

A policy that is killed sends no more chunks, and neither does one that is slow. The heartbeats tell them
apart, so that the head need not play the last chunk of a dead policy to its end.
"""

from __future__ import annotations

from hardware.safety.timing import START_PERIODS

HEARTBEAT_S = 0.01  # period at which arm_policy sends
LEAST_TIMEOUT_S = 0.025  # of the default: two heartbeats in a row may be late
TIMEOUT_PERIODS = 1.25  # of the default, in periods of commands


def default_timeout_s(period_s: float) -> float:
    """Longest time without a heartbeat, at this period of commands."""
    return max(LEAST_TIMEOUT_S, TIMEOUT_PERIODS * period_s)


class PolicyHeartbeat:
    """Sign of life of a policy. A policy that never sent a heartbeat, such as another program, is not judged.

    timeout_s: longest time without one; 0: heartbeats are ignored. period_s: of commands.
    """

    def __init__(self, timeout_s: float, period_s: float) -> None:
        self._timeout_s, self._forget_s = timeout_s, timeout_s + START_PERIODS * period_s
        self._last_s: float | None = None

    def receive(self, alive: bool, received_s: float) -> None:
        """Take a heartbeat. alive: false from a policy that ends; then it is forgotten."""
        self._last_s = received_s if alive and self._timeout_s > 0.0 else None

    def note_chunk(self, received_s: float) -> None:
        """Take a chunk as a heartbeat, of a policy that sends heartbeats."""
        if self._last_s is not None:
            self._last_s = max(self._last_s, received_s)

    def is_missing(self, now_s: float) -> bool:
        """True while the heartbeat of a policy that had one is late."""
        return self._last_s is not None and now_s - self._last_s > self._timeout_s

    def is_lost(self, now_s: float) -> bool:
        """True once the heartbeat has been missing for so long that the next command is a first one.

        The policy is forgotten then: the next one may be a program without heartbeats.
        """
        lost = self._last_s is not None and now_s - self._last_s > self._forget_s
        if lost:
            self._last_s = None
        return lost
