"""Nodes on DDS: one in the test's process, and one that echoes in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hardware.bus.dds.bus import DdsBus


@pytest.fixture
def echo(domain: int) -> Iterator[subprocess.Popen[str]]:
    """The echo node, running."""
    from tests.hardware.bus.dds_nodes import ROOT, SOON_S

    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hardware.bus.echo"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    yield process
    process.kill()
    process.communicate(timeout=SOON_S)


@pytest.fixture
def node(domain: int) -> Iterator[DdsBus]:
    """A node in this process; its warnings are in `said`."""
    from hardware.bus.dds.bus import DdsBus

    said: list[str] = []
    bus = DdsBus("tester", "lab", warn=said.append)
    bus.said = said  # type: ignore[attr-defined]
    yield bus
    bus.close()
