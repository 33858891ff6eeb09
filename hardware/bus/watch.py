"""Detection of silent topics, used by the buses on rclpy and DDS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hardware.bus.protocol import Profile
from hardware.messages import Diagnostics, Flag, JointJog, Twist

SILENT_S = 5.0  # time without a message after which a topic of states or pictures counts as silent


def watch(topic: str, kind: type[Any], profile: Profile, now_s: float) -> TopicWatch | None:
    """A watch for a topic of states or pictures; None for other topics.

    Commands, teleoperation, heartbeats and latched topics may be silent; the diagnostics node reports stale
    diagnostics.
    """
    return (
        TopicWatch(topic, now_s)
        if profile in (Profile.STATE, Profile.SENSOR) and kind not in (Diagnostics, Flag, JointJog, Twist)
        else None
    )


@dataclass(slots=True)
class TopicWatch:
    """Silence detector of one subscription. Times are local monotonic seconds."""

    topic: str
    since_s: float  # time of the last message, or of the subscription
    received: bool = False
    silent: bool = field(default=False, init=False)

    def on_message(self, now_s: float) -> str | None:
        """Record a message; returns a notice if it ends a silence."""
        gap_s, was_silent = now_s - self.since_s, self.silent
        self.since_s, self.received, self.silent = now_s, True, False
        return f"'{self.topic}' is back after {gap_s:.0f} s." if was_silent else None

    def check(self, now_s: float, publishers: int, hint: str = "") -> str | None:
        """A warning when the topic has just become silent.

        publishers: number of matching publishers. hint: a likely cause, for a topic without a message so far.
        """
        if self.silent or now_s - self.since_s < SILENT_S:
            return None
        self.silent = True
        if self.received:
            state = "is still announced (for 10 s if it was killed)" if publishers else "is gone"
            return f"No message on '{self.topic}' for {SILENT_S:.0f} s; its publisher {state}."
        never = f"No message on '{self.topic}' for {SILENT_S:.0f} s"
        if publishers:
            return f"{never}, although it has {publishers} publisher(s): see their output."
        advice = "Start its node, and compare namespace and ROS_DOMAIN_ID on both sides"
        return f"{never}: {hint}." if hint else f"{never}: it has no publisher. {advice}."
