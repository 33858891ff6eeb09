"""Generator of the tables in docs/topics.md: `python -m hardware.topic_table` prints them."""

from __future__ import annotations

from hardware.bus.quality import QUALITY
from hardware.bus.wire import WIRE
from hardware.services import SERVICES
from hardware.topics import TOPICS


def topic_rows() -> list[str]:
    """Markdown lines, one per topic."""
    rows = [
        "| topic | type | profile | rate | from | to | meaning |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for topic in TOPICS:
        kind = WIRE[topic.kind].ros_type.replace("/msg/", "/")
        rows.append(
            f"| `{topic.name}` | {kind} | {topic.profile.value} | {topic.rate} | {topic.by} | {topic.to} | "
            f"{topic.meaning} |"
        )
    return rows


def quality_rows() -> list[str]:
    """Markdown lines, one per profile."""
    rows = [
        "| profile | publisher offers | subscriber requests | durability | keep last |",
        "| --- | --- | --- | --- | --- |",
    ]
    words = {True: "reliable", False: "best effort"}
    for profile, quality in QUALITY.items():
        durability = "transient local" if quality.latched else "volatile"
        offers = words[quality.offers_reliable]
        requests = "any, by three subscriptions" if quality.latched else words[quality.requests_reliable]
        rows.append(f"| {profile.value} | {offers} | {requests} | {durability} | {quality.depth} |")
    return rows


def service_rows() -> list[str]:
    """Markdown lines, one per service; all services are std_srvs/Trigger."""
    rows = ["| node | service | effect |", "| --- | --- | --- |"]
    return rows + [
        f"| {node} | `{name}` | {effect} |" for node, pairs in SERVICES.items() for name, effect in pairs
    ]


if __name__ == "__main__":
    print("\n\n".join("\n".join(rows()) for rows in (topic_rows, quality_rows, service_rows)))
