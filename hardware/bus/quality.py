"""Quality of service of each profile: one table for the two middleware buses."""

from __future__ import annotations

from dataclasses import dataclass

from hardware.bus.protocol import Profile


@dataclass(frozen=True, slots=True)
class Quality:
    """What a publisher offers and what a subscriber asks for; `depth` is of both."""

    offers_reliable: bool
    asks_reliable: bool
    latched: bool
    depth: int


QUALITY = {
    Profile.COMMAND: Quality(True, True, False, 1),
    # Asks for less than it offers: drivers publish their state either way, and the newest alone counts.
    Profile.STATE: Quality(True, False, False, 1),
    Profile.SENSOR: Quality(False, False, False, 5),
    Profile.LATCHED: Quality(True, True, True, 1),
}
# DDS' numbers of the policies that can keep two sides apart, and what such a mismatch means.
MISMATCHES = {
    2: "durability (one side wants what was said before it came, the other does not keep it)",
    4: "deadline",
    5: "latency budget",
    6: "ownership",
    8: "liveliness",
    11: "reliability (the subscriber asks for reliable, the publisher offers best effort)",
    23: "data representation (XCDR1 against XCDR2)",
    24: "type (the two use different messages under one name)",
}


def mismatch(topic: str, policy: int, publishing: bool) -> str:
    """The sentence for a publisher and a subscriber of one topic that cannot be joined."""
    other = "subscriber" if publishing else "publisher"
    why = MISMATCHES.get(policy, f"policy {policy}")
    return (
        f"A {other} of '{topic}' does not match this node's quality of service: {why}. Nothing passes "
        "between the two; change the other side's profile, see the table of topics in docs/ros2.md."
    )
