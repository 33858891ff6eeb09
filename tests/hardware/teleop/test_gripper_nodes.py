"""The gripper through the nodes: device, filter, simulated arm with a gripper, joint_states and commands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")

from hardware.bus.in_process import InProcessWorld
from hardware.description import load_description
from hardware.messages import Flag, JointJog, Twist
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.nodes.teleop import TeleopNode
from hardware.teleop.device import NOTHING, OperatorInput
from hardware.topics import INTERVENTION, JOINT_JOG, JOINT_STATES, SAFE, TWIST
from sim.arms.arm6.gripper import gripping_arm
from tests.hardware.teleop.test_teleop_node import Hand

ROBOT = load_description("sim_arm_gripper")
STILL = OperatorInput(True, twist=np.zeros(6))


class Cell:
    """The simulated arm with a gripper behind its filter; `states` and `sent` of the gripper [m]."""

    def __init__(self) -> None:
        self.world, self.arm, self.hand = InProcessWorld(), gripping_arm(), Hand()
        self.states: list[float] = []
        self.sent: list[Any] = []
        self.bus = self.world.bus("probe")
        JOINT_STATES.subscribe(
            self.bus, lambda m, at: self.states.append(m.position_rad[m.names.index("gripper")])
        )
        SAFE.subscribe(self.bus, lambda m, at: self.sent.append(m.position_rad[0]))
        SimArmNode(self.world.bus("robot"), self.arm, 100.0, ROBOT)
        self.filter = SafetyFilterNode(self.world.bus("filter"), ROBOT, arm=True)

    def run(self, seconds: float) -> None:
        end_s = self.world.now() + seconds
        self.bus.spin(lambda: self.world.now() >= end_s - 1e-9)


def test_button_closes_the_gripper_through_the_filter() -> None:
    """At most 0.1 m/s and 2 m/s^2, as described; the arm stays, and a release stops the fingers."""
    cell = Cell()
    TeleopNode(cell.world.bus("teleop"), cell.hand, ROBOT)
    cell.run(0.2)
    cell.hand.operator = STILL
    cell.run(0.2)
    begun_rad = cell.arm.read()[0]
    cell.hand.operator = OperatorInput(True, twist=np.zeros(6), gripper_toggle=True)
    cell.run(0.2)
    cell.hand.operator = NOTHING
    cell.run(0.3)
    halfway_m = cell.states[-1]
    assert 0.015 < halfway_m < 0.035
    cell.hand.operator = OperatorInput(True, twist=np.zeros(6), gripper=0.0)
    cell.run(1.0)
    assert cell.states[-1] == pytest.approx(0.0, abs=2e-3)
    assert cell.arm.read()[0][:6] == pytest.approx(begun_rad[:6], abs=0.01)
    speeds = np.diff(np.array(cell.sent)[:, 6]) / 0.02
    assert np.abs(speeds).max() <= 0.1 * 2.0 + 1e-9  # a late command may make up for one period
    assert (np.array(cell.sent)[:, 6] >= -1e-12).all()


def test_twist_and_jog_of_the_gripper_are_followed_together() -> None:
    """As a page sends them: the tool rises while the fingers close, and goes on when they have closed."""
    cell = Cell()
    bus = cell.world.bus("page")
    twist, jog = TWIST.publisher(bus), JOINT_JOG.publisher(bus)
    up, none = np.array([0.0, 0.0, 0.05]), np.zeros(3)
    cell.run(0.2)
    INTERVENTION.publisher(bus)(Flag(True))
    begun_m = cell.arm.tool_m()
    bus.timer(0.04, lambda: twist(Twist(0.0, up, none)))
    bus.timer(0.05, lambda: jog(JointJog(0.0, ("gripper",), np.array([-0.08]))))
    cell.run(1.0)
    assert cell.arm.tool_m() - begun_m == pytest.approx(
        [0.0, 0.0, 0.05], abs=0.015
    )  # its servos lag by 0.2 s
    assert cell.states[-1] == pytest.approx(0.0, abs=2e-3)
