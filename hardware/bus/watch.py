"""Says when a topic that should never be silent is: a pure clockwork that both middleware buses wind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hardware.bus.protocol import Profile
from hardware.messages import Diagnostics

SILENT_S = (
    5.0  # so long after the start, or after the last message, a topic of state or pictures is called silent
)


def watch(topic: str, kind: type[Any], profile: Profile, now_s: float) -> TopicWatch | None:
    """A watch over state and pictures. Commands and latched topics may rest; diagnostics are told as stale
    instead.
    """
    return (
        TopicWatch(topic, now_s)
        if profile in (Profile.STATE, Profile.SENSOR) and kind is not Diagnostics
        else None
    )


@dataclass(slots=True)
class TopicWatch:
    """One subscription. Times are local monotonic seconds."""

    topic: str
    since_s: float  # of the last message, or of the subscription
    heard: bool = False
    silent: bool = field(default=False, init=False)

    def hear(self, now_s: float) -> str | None:
        """A message has come; a sentence if that ends a silence."""
        gap_s, was_silent = now_s - self.since_s, self.silent
        self.since_s, self.heard, self.silent = now_s, True, False
        return f"'{self.topic}' is back after {gap_s:.0f} s." if was_silent else None

    def look(self, now_s: float, publishers: int, hint: str = "") -> str | None:
        """A sentence when a silence has just become too long; `publishers` are those that match."""
        if self.silent or now_s - self.since_s < SILENT_S:
            return None
        self.silent = True
        if self.heard and publishers:
            return f"'{self.topic}' has fallen silent for {SILENT_S:.0f} s; its publisher is still there."
        if self.heard:
            return f"'{self.topic}' has fallen silent for {SILENT_S:.0f} s, and its publisher is gone."
        never = f"Nothing has come on '{self.topic}' for {SILENT_S:.0f} s"
        if publishers:
            return f"{never}, though {publishers} publish it: see what they print."
        advice = "start the node that does, and compare namespace and ROS_DOMAIN_ID on both sides"
        return f"{never}: {hint}." if hint else f"{never}, and nobody publishes it: {advice}."
