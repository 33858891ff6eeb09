"""Killing any process of a running set ends all. `benchmarks/attack.py --part processes` kills fifty."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from attacks import processes


@pytest.mark.slow
def test_each_process_can_be_killed() -> None:
    """Policy, head, filter, robot and launcher, once each."""
    tried, found, example = processes.attack(len(processes.VICTIMS), seed=0)
    assert (tried, found.total(), example) == (5, 0, "")
