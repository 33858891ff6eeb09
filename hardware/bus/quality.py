"""Quality of service of each profile: one table for the two middleware buses."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from hardware.bus.protocol import Profile

RECORDED = 4096  # messages that are kept for the recorder: eight seconds at 500 Hz
QUEUED = 64  # messages that wait on a topic of which each one counts


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of service of a profile; `depth` and `latched` hold for publishers and subscribers."""

    offers_reliable: bool
    requests_reliable: bool
    latched: bool
    depth: int

    def requested(self) -> tuple[RequestedQos, ...]:
        """Subscriptions for a topic of this profile; the first matches every publisher of the type.

        A latched topic needs three. Transient local alone does not match ordinary publishers, such as `ros2
        topic pub`, and volatile alone does not receive earlier messages.
        """
        if not self.latched:
            return (RequestedQos(self.requests_reliable, latched=False),)
        return (
            RequestedQos(False, latched=False),
            RequestedQos(True, latched=False),
            RequestedQos(True, latched=True),
        )

    def recorded(self) -> Quality:
        """Quality of the recorder's subscription, with long queues for states and commands: disks are slow.

        Pictures keep their depth, because they are large; latched topics keep theirs, see `Repeats`.
        """
        return replace(self, depth=RECORDED) if self.depth == 1 and not self.latched else self

    def queued(self) -> Quality:
        """Quality of a subscription in which a message does not replace one that waits."""
        return replace(self, depth=QUEUED)


@dataclass(frozen=True, slots=True)
class RequestedQos:
    """Reliability and durability that one subscription requests."""

    reliable: bool
    latched: bool


class Repeats:
    """Filter for messages that another subscription of the same topic has just delivered.

    Only the last message is compared. If an earlier latched message arrives after a newer one, the newer one
    is delivered again, so that the last delivered message is the publisher's newest.
    """

    def __init__(self) -> None:
        self._last: Hashable = None

    def fresh(self, key: Hashable) -> bool:
        """True if `key` (the sender's stamp and the content) differs from that of the previous call."""
        repeated, self._last = key == self._last, key
        return not repeated


QUALITY = {
    Profile.COMMAND: Quality(True, True, False, 1),
    # Subscribers ask for best effort, which matches every driver; only the newest message counts.
    Profile.STATE: Quality(True, False, False, 1),
    Profile.SENSOR: Quality(False, False, False, 5),
    Profile.LATCHED: Quality(True, True, True, 1),
}
# Ids of DDS policies -> meaning of a mismatch.
MISMATCHES = {
    2: "durability (the subscriber requests earlier messages, the publisher does not keep them)",
    4: "deadline",
    5: "latency budget",
    6: "ownership",
    8: "liveliness",
    11: "reliability (the subscriber requests reliable, the publisher offers best effort)",
    23: "data representation (XCDR1 against XCDR2)",
    24: "type (the two use different messages under one name)",
}


def mismatch(topic: str, policy: int, publishing: bool) -> str:
    """Warning for a publisher and a subscriber of one topic whose qualities of service do not match.

    policy: id of the DDS policy that differs. publishing: True if this node is the publisher.
    """
    other = "subscriber" if publishing else "publisher"
    why = MISMATCHES.get(policy, f"policy {policy}")
    return (
        f"A {other} of '{topic}' does not match this node's quality of service: {why}. They exchange no "
        "messages. Change the profile of the other side; docs/topics.md lists the profile of each topic."
    )
