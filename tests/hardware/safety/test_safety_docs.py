"""docs/safety.md agrees with the code."""

from __future__ import annotations

from pathlib import Path

from hardware.safety.reasons import Reason
from hardware.safety.table import failsafe_table
from hardware.services import SERVICES
from hardware.topics import TOPICS

ROOT = Path(__file__).resolve().parents[3]


def test_failsafe_table_matches_the_code() -> None:
    """Regenerate it with python -m hardware.safety.table."""
    assert failsafe_table() in (ROOT / "docs" / "safety.md").read_text()


def test_reasons_have_distinct_messages() -> None:
    """Members of an enum with equal values would be one member."""
    assert len({reason.sentence for reason in Reason}) == len(Reason.__members__)
    assert all(reason.value.arm or reason.value.quad for reason in Reason)


def test_topic_names_are_distinct() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    assert all(name.startswith("~/") for rows in SERVICES.values() for name, _ in rows)
