"""The simulated arm with a gripper."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.description import load_description
from hardware.nodes.sim_robot import SimArm
from sim.arms.arm6.body import SimulatedArm
from sim.arms.arm6.gripper import OPEN_M, gripping_arm


def test_gripper_closes_and_the_arm_stays() -> None:
    """Both fingers move, within a second; the arm moves by less than 1 mrad."""
    arm, robot = gripping_arm(), load_description("sim_arm_gripper")
    assert isinstance(arm, SimArm)
    assert arm.names == robot.names
    assert robot.column("high_rad") == pytest.approx(arm.high_rad)
    begun_rad = arm.read()[0]
    arm.command(np.append(begun_rad[:6], 0.0))
    arm.advance(1.0)
    ended_rad, speed_rad_s = arm.read()
    assert ended_rad[:6] == pytest.approx(begun_rad[:6], abs=1e-3)
    assert (begun_rad[6], ended_rad[6]) == pytest.approx((OPEN_M, 0.0), abs=1e-3)
    assert arm.data.qpos[7] == pytest.approx(ended_rad[6], abs=1e-3)
    assert np.abs(speed_rad_s).max() < 0.02
    arm.reset()
    assert arm.read()[0] == pytest.approx(begun_rad)


def test_arm_without_a_gripper_is_as_before() -> None:
    arm = SimulatedArm()
    assert (arm.model.nq, len(arm.names), arm.read()[0].shape) == (6, 6, (6,))
