"""docs/ros2.md has one table of topics, one of qualities and one of services, and they are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hardware.bus.wire import WIRE
from hardware.topic_table import quality_rows, service_rows, topic_rows
from hardware.topics import SERVICES, TOPICS
from robo_rl.apps.nodes.node_table import NODES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ros2.md").read_text()


@pytest.mark.parametrize(
    ("name", "rows"), [("topics", topic_rows), ("qualities", quality_rows), ("services", service_rows)]
)
def test_the_page_has_the_table_of_the_code(name: str, rows: object) -> None:
    """Where it does not: put what `python -m hardware.topic_table` prints between the markers."""
    found = re.search(rf"<!-- {name}: begin -->\n\n(.*?)\n\n<!-- {name}: end -->", PAGE, flags=re.DOTALL)
    assert found is not None
    assert found[1].splitlines() == rows()  # type: ignore[operator]


def test_topics_can_go_over_the_wire() -> None:
    """Each has a ROS type, a name of its own, and a rate in words."""
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    assert all(topic.kind in WIRE and topic.rate and topic.meaning for topic in TOPICS)


def test_nodes_that_are_named_exist() -> None:
    """Services belong to nodes that can be started."""
    assert set(SERVICES) <= set(NODES)
