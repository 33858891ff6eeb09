"""An intermittent fault gives two lines in the terminal, however often it recurs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.messages import Floats, JointState
from hardware.nodes.arm_policy import ArmPolicyNode
from hardware.nodes.shared.fault_log import FaultLog
from hardware.topics import GOAL, JOINT_STATES
from policies.deploy.bundle import Bundle
from tests.hardware.arm_descriptions import NAMES, arm
from tests.hardware.nodes.cell import DelayedInference

STALE = "the robot's state is stale, so the policy is not asked"


def test_irregular_states_give_two_reports(chunks: Bundle) -> None:
    """20 pauses of 0.2 s, stale after 0.06 s: one line when it begins, one with the count after 2 s."""
    world, said = InProcessWorld(), list[str]()
    robot, bus = world.bus("robot"), world.bus("policy")
    ArmPolicyNode(bus, chunks, arm(), DelayedInference(world, chunks, 0.03), True, said.append)
    publish = JOINT_STATES.publisher(robot)
    GOAL.publisher(robot)(Floats(np.array([0.5])))

    def past(due_s: float) -> bool:
        return world.now() >= due_s

    def go_on(until_s: float, period_s: float) -> None:
        while world.now() < until_s:
            publish(JointState(world.now(), NAMES, np.zeros(3), np.zeros(3)))
            due_s = world.now() + period_s
            robot.spin(partial(past, due_s))

    go_on(1.0, 0.02)
    assert said == []
    go_on(5.0, 0.2)
    assert said == [f"policy: {STALE}"]
    go_on(6.5, 0.02)
    assert len(said) == 1
    go_on(8.0, 0.02)
    assert len(said) == 2
    assert said[1] == f"policy: resolved; it occurred 20 times within 4.0 s: {STALE}"


def test_silent_robot_and_its_return_are_reported_once() -> None:
    said: list[str] = []
    log = FaultLog("policy", said.append)
    for tick in range(100):
        log.begin(STALE, 1.0 + 0.02 * tick)
    assert (said, log.present) == ([f"policy: {STALE}"], STALE)
    for tick in range(100):
        log.end(3.0 + 0.02 * tick)
    assert (len(said), log.present) == (1, "")
    log.end(5.1)
    assert said[1:] == [f"policy: resolved; it lasted 2.0 s: {STALE}"]


@pytest.mark.parametrize("pause_s", [0.1, 1.0])
def test_alternating_faults_are_reported_once_each(pause_s: float) -> None:
    said: list[str] = []
    log = FaultLog("head", said.append)
    for turn in range(10):
        log.begin("no picture.", 2 * turn * pause_s)
        log.begin("no state.", (2 * turn + 1) * pause_s)
    assert said == ["head: no picture.", "head: no state."]
