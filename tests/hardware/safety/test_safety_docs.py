"""docs/safety.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from hardware.safety.reasons import Reason
from hardware.safety.table import failsafe_table
from hardware.topics import SERVICES, TOPICS

ROOT = Path(__file__).resolve().parents[3]


def test_the_failsafe_table_is_that_of_the_code() -> None:
    """Regenerate it by python -m hardware.safety.table."""
    assert failsafe_table() in (ROOT / "docs" / "safety.md").read_text()


def test_every_reason_is_its_own() -> None:
    """Equal members of an enum would be one: a sentence of its own keeps them apart."""
    assert len({reason.sentence for reason in Reason}) == len(Reason.__members__)
    assert all(reason.value.arm or reason.value.quad for reason in Reason)


def test_names_of_topics_are_their_own() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    assert all(name.startswith("~/") for rows in SERVICES.values() for name, _ in rows)
