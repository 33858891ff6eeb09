"""Killing any process of a running set ends all. `benchmarks/attack.py --part processes` kills fifty."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from attacks import processes

from hardware.messages import JointState, JointTrajectory


def watched(commands: list[float], states: list[float], period_s: float = 0.02) -> processes.Watch:
    """What an observer received, one message per period, of an arm with one joint."""
    limit = np.array([9.0])
    watch = processes.Watch(limit, -limit, limit)
    for i, place in enumerate(commands):
        command = JointTrajectory(0.0, ("a",), np.array([[place]]), np.array([period_s]))
        watch.see(command, i * period_s)
    for i, place in enumerate(states):
        watch.see_state(JointState(0.0, ("a",), np.array([place])), i * period_s)
    return watch


def test_an_arm_holds_when_neither_a_command_nor_its_position_changes_any_more() -> None:
    """Killed at 0.1 s: the last command that moves is the one at 0.14 s, and the arm arrives at 0.2 s."""
    moving = [0.1 * i for i in range(8)]
    watch = watched([*moving, *[0.7] * 8], [*[0.1 * i for i in range(11)], *[1.0] * 5])
    assert watch.held_s(0.1) == pytest.approx((0.04, 0.1))
    assert watch.held_s(1.0) == (0.0, 0.0)
    assert watched(moving, moving[:3]).held_s(0.1) == pytest.approx(
        (0.04, 0.04)
    )  # the arm ended with its process


def test_an_arm_that_stands_still_is_not_driven() -> None:
    """A command that repeats the arm's place does not prove that a policy drives."""
    assert not watched([0.5] * 30, [0.5] * 30).moves()
    assert watched([], [0.01 * i for i in range(30)]).moves()


@pytest.mark.slow
def test_each_process_can_be_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """Policy, head, filter, robot and launcher, once each, with the time until the arm holds."""
    tried, found, example = processes.attack(len(processes.VICTIMS), seed=0)
    assert (tried, found.total(), example) == (5, 0, "")
    lines = {line["name"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert len(lines) == 4 * len(processes.VICTIMS)
    for victim in processes.VICTIMS:
        assert lines[f"attack/processes/hold_p50_periods/{victim}"]["kills"] == 1
        assert lines[f"attack/processes/command_hold_p99_periods/{victim}"]["value"] < 50
