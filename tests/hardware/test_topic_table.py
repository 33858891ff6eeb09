"""Tables of topics, qualities and services in docs/topics.md agree with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hardware.bus.wire import WIRE
from hardware.services import SERVICES
from hardware.topic_table import quality_rows, service_rows, topic_rows
from hardware.topics import TOPICS
from robo_rl.apps.nodes.node_table import NODES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "topics.md").read_text()


@pytest.mark.parametrize(
    ("name", "rows"), [("topics", topic_rows), ("qualities", quality_rows), ("services", service_rows)]
)
def test_tables_of_the_docs_match_the_code(name: str, rows: object) -> None:
    """To update them: put the output of `python -m hardware.topic_table` between the markers."""
    found = re.search(rf"<!-- {name}: begin -->\n\n(.*?)\n\n<!-- {name}: end -->", PAGE, flags=re.DOTALL)
    assert found is not None
    assert found[1].splitlines() == rows()  # type: ignore[operator]


def test_every_topic_has_a_ros_type() -> None:
    """And a distinct name, and a rate in words."""
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    assert all(topic.kind in WIRE and topic.rate and topic.meaning for topic in TOPICS)


def test_services_belong_to_existing_nodes() -> None:
    """Each can be started."""
    assert set(SERVICES) <= set(NODES)
