"""A robot on DDS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hardware.bus.dds.bus import DdsBus


@pytest.fixture
def bus(domain: int) -> Iterator[DdsBus]:
    """The robot's side; needs the package cyclonedds."""
    from hardware.bus.dds.bus import DdsBus

    made = DdsBus("robot", "lab", warn=lambda sentence: None)
    yield made
    made.close()
