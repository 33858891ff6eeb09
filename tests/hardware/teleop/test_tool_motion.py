"""Cartesian teleoperation against an oracle of its own: MuJoCo's kinematics of the same arm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray

from hardware.description import RobotDescription, load_description
from hardware.kinematics import tool_jacobian, tool_pose
from hardware.teleop.device import HandPose, OperatorInput
from hardware.teleop.drive import OperatorDrive
from hardware.teleop.hand_motion import LEASH_M, ToolLimits
from hardware.teleop.rotations import turn_of, vector_of
from hardware.teleop.tool_speed import ToolSpeed
from robo_rl.core.shapes import Float

mujoco = pytest.importorskip("mujoco")
ROBOT = load_description("sim_arm")
LOW, HIGH, SPEED = (ROBOT.column(key) for key in ("low_rad", "high_rad", "velocity_rad_s"))
DT_S = 0.02
READY = np.array([0.1, 0.6, 1.0, 0.3, 0.8, 0.0])
SEEDS = st.integers(0, 2**32 - 1)


class Oracle:
    """Pose of the tool of the simulated arm by MuJoCo."""

    def __init__(self) -> None:
        from sim.arms.arm6.body import arm_model

        self.model = arm_model()
        self.data: Any = mujoco.MjData(self.model)

    def pose(self, position_rad: Float[ndarray, " 6"]) -> tuple[ndarray, ndarray]:
        self.data.qpos[:] = position_rad
        mujoco.mj_kinematics(self.model, self.data)
        site = self.model.site("tool").id
        return self.data.site_xpos[site].copy(), self.data.site_xmat[site].reshape(3, 3).copy()


ORACLE = Oracle()


def quat_of(vector_rad: Float[ndarray, " 3"]) -> Float[ndarray, " 4"]:
    angle = float(np.linalg.norm(vector_rad))
    axis = vector_rad / max(angle, 1e-12)
    return np.array([np.cos(0.5 * angle), *(np.sin(0.5 * angle) * axis)])


def hand(place_m: Any, turn_rad: Any = (0.0, 0.0, 0.0)) -> OperatorInput:
    return OperatorInput(True, pose=HandPose(np.array(place_m, float), quat_of(np.array(turn_rad, float))))


def moved(before_rad: ndarray, after_rad: ndarray) -> Float[ndarray, " 6"]:
    """Displacement and rotation of the tool in the base frame, by the oracle."""
    (place, turn), (place_after, turn_after) = ORACLE.pose(before_rad), ORACLE.pose(after_rad)
    return np.concatenate([place_after - place, vector_of(turn_after @ turn.T)])


@settings(deadline=None)
@given(SEEDS)
def test_kinematics_agree_with_mujoco(seed: int) -> None:
    """Tool, rotation and Jacobian, by central differences of the oracle."""
    position_rad = np.random.default_rng(seed).uniform(LOW, HIGH)
    for ours, theirs in zip(tool_pose(ROBOT)(position_rad), ORACLE.pose(position_rad), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-9)
    nudges = 1e-5 * np.eye(6)
    slopes = [moved(position_rad - nudge, position_rad + nudge) / 2e-5 for nudge in nudges]
    assert tool_jacobian(ROBOT)(position_rad) == pytest.approx(np.array(slopes).T, abs=1e-5)


@settings(deadline=None)
@given(SEEDS, st.floats(0.0, np.pi))
def test_rotation_vectors_invert(seed: int, angle: float) -> None:
    """exp and log, up to half a turn, where the axis has two signs."""
    axis = np.random.default_rng(seed).standard_normal(3)
    turn = turn_of(angle * axis / np.linalg.norm(axis))
    assert turn_of(vector_of(turn)) == pytest.approx(turn, abs=1e-9)
    assert np.linalg.norm(vector_of(turn)) == pytest.approx(angle, abs=1e-7)


@settings(max_examples=300, deadline=None)
@given(SEEDS, st.sampled_from([0.0, 0.01, 0.3, 100.0]))
def test_tool_slows_down_and_never_jumps(seed: int, reach: float) -> None:
    """Any twist, from any position, also at the ends of the range and at singular ones: within speed and
    range, and never against the twist.
    """
    rng = np.random.default_rng(seed)
    position_rad = rng.uniform(LOW, HIGH)
    at_end = rng.random(6) < 0.2
    position_rad[at_end] = np.where(rng.random(6) < 0.5, LOW, HIGH)[at_end]
    if rng.random() < 0.3:
        position_rad[[2, 4]] = rng.choice([0.0, 1e-9, 1e-4], 2)  # stretched, axes 4 and 6 in line
    twist = reach * rng.standard_normal(6)
    motion = ToolSpeed(ROBOT).of(twist, position_rad, DT_S)
    after_rad = position_rad + motion.speed_rad_s * DT_S
    assert np.isfinite(motion.speed_rad_s).all()
    assert (np.abs(motion.speed_rad_s) <= SPEED + 1e-9).all()
    assert ((after_rad >= LOW - 1e-9) & (after_rad <= HIGH + 1e-9)).all()
    assert 0.0 <= motion.slowed <= 1.0
    weights = np.repeat([1.0, 0.2], 3)
    small = 1e-4  # of the step, so that the motion is straight
    way = moved(position_rad, position_rad + small * motion.speed_rad_s) / small
    assert (weights * way) @ (weights * twist) >= -1e-3 * float(np.abs(twist).max() + 1e-9)


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_tool_follows_exactly_where_it_can(seed: int) -> None:
    """Away from singular positions and ends the tool moves by the twist, or by a share of it."""
    rng = np.random.default_rng(seed)
    position_rad = READY + rng.uniform(-0.3, 0.3, 6)
    twist = np.repeat([0.2, 1.0], 3) * rng.standard_normal(6)
    motion = ToolSpeed(ROBOT).of(twist, position_rad, DT_S)
    way = moved(position_rad, position_rad + 1e-4 * motion.speed_rad_s) / 1e-4
    assert way == pytest.approx((1.0 - motion.slowed) * twist, abs=2e-3)


def follow(drive: OperatorDrive, hands: list[OperatorInput], at_rad: ndarray) -> list[ndarray]:
    """Positions of an arm that follows each command at once."""
    places = [at_rad]
    for operator in hands:
        target_rad = drive.next(operator, places[-1], None, DT_S)
        assert target_rad is not None
        places.append(target_rad)
    return places


def test_tool_repeats_the_motion_of_the_hand() -> None:
    """0.1 m and 0.5 rad in 2 s, from a hand that stands and is turned otherwise than the tool: 1 mm."""
    drive = OperatorDrive(ROBOT)
    start_m, way_m, turn_rad = (
        np.array([5.0, -3.0, 1.0]),
        np.array([-0.06, 0.07, 0.04]),
        np.array([0.3, 0, 0.4]),
    )
    hands = [hand(start_m + s * way_m, s * turn_rad) for s in np.linspace(0.0, 1.0, 100)]
    places = follow(drive, hands + hands[-1:] * 50, READY)
    assert moved(places[0], places[-1]) == pytest.approx([*way_m, *turn_rad], abs=1e-3)
    assert drive.slowed == pytest.approx(0.0, abs=1e-6)


def test_scaled_motion() -> None:
    drive = OperatorDrive(ROBOT, ToolLimits(scale=0.25))
    hands = [hand([0.0, 0.0, 0.2 * s]) for s in np.linspace(0.0, 1.0, 100)]
    places = follow(drive, hands + hands[-1:] * 50, READY)
    assert moved(places[0], places[-1])[:3] == pytest.approx([0.0, 0.0, 0.05], abs=1e-3)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_clutch_is_engaged_again_without_a_jump(seed: int) -> None:
    """Wherever the hand went meanwhile, the first command of each engagement is the arm's own position."""
    rng = np.random.default_rng(seed)
    drive, at_rad = OperatorDrive(ROBOT), READY
    for _ in range(4):
        drive.release()
        start_m, turn_rad = rng.uniform(-2.0, 2.0, 3), rng.uniform(-3.0, 3.0, 3)
        first = drive.next(hand(start_m, turn_rad), at_rad, None, DT_S)
        assert first == pytest.approx(at_rad, abs=1e-9)
        way_m = 0.02 * rng.standard_normal(3)
        hands = [hand(start_m + s * way_m, turn_rad) for s in np.linspace(0.0, 1.0, 10)]
        at_rad = follow(drive, hands, at_rad)[-1]


def test_hand_that_jumps_moves_nothing() -> None:
    """A tracker that loses the hand and finds it 0.4 m away: the tool stays, and follows from there."""
    drive = OperatorDrive(ROBOT)
    lost = [hand([0.0, 0.0, 0.0])] * 10 + [hand([0.4, 0.0, 0.0])] * 20
    places = follow(drive, lost, READY)
    assert np.abs(places[-1] - READY).max() < 1e-9
    assert moved(places[-1], follow(drive, [hand([0.42, 0.0, 0.0])] * 30, places[-1])[-1])[
        0
    ] == pytest.approx(0.02, abs=1e-3)


def test_reversal_beyond_reach_is_felt_at_once() -> None:
    """The hand goes 1 m beyond the stretched arm and comes back: the leash ends the wind-up."""
    drive = OperatorDrive(ROBOT)
    out = [hand([0.02 * i, 0.0, 0.0]) for i in range(60)]
    places = follow(drive, out, READY)
    assert drive.slowed > 0.9  # it is stretched
    back = [hand([1.18 - 0.004 * i, 0.0, 0.0]) for i in range(100)]
    returned = follow(drive, back, places[-1])
    assert moved(places[-1], returned[-1])[0] < -(0.4 - 1.5 * LEASH_M)


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_random_hands_never_move_a_joint_faster_than_allowed(seed: int) -> None:
    """A hand that walks, jumps, turns and lets go at random, from a random position of the arm."""
    rng = np.random.default_rng(seed)
    drive, at_rad = OperatorDrive(ROBOT), rng.uniform(LOW, HIGH)
    place_m, turn_rad = rng.standard_normal(3), rng.standard_normal(3)
    for _ in range(60):
        step = float(rng.choice([0.001, 0.02, 1.0], p=[0.5, 0.4, 0.1]))
        place_m, turn_rad = place_m + step * rng.standard_normal(3), turn_rad + step * rng.standard_normal(3)
        if rng.random() < 0.1:
            drive.release()
        target_rad = drive.next(hand(place_m, turn_rad), at_rad, None, DT_S)
        assert target_rad is not None
        assert (np.abs(target_rad - at_rad) <= SPEED * DT_S + 1e-9).all()
        at_rad = target_rad


def test_five_joints_move_the_tool_as_far_as_they_can() -> None:
    """Without the flange no rotation about the tool's axis is left; a straight motion stays straight."""
    five = replace(ROBOT, joints=ROBOT.joints[:5], tool_m=(0.0, 0.0, 0.16))
    at_rad = READY[:5].copy()
    at_rad[3] = 0.0
    motion = ToolSpeed(five).of(np.array([0.0, 0.0, 0.1, 0.0, 0.0, 0.0]), at_rad, DT_S)
    way_m = tool_pose(five)(at_rad + 1e-3 * motion.speed_rad_s)[0] - tool_pose(five)(at_rad)[0]
    assert way_m / 1e-3 == pytest.approx([0.0, 0.0, 0.1], abs=2e-3)


def test_description_without_axes_is_reported() -> None:
    drive = OperatorDrive(load_description("ur5e"))
    assert drive.next(OperatorInput(True, twist=np.ones(6)), np.zeros(6), None, DT_S) is None
    assert drive.fault.endswith("give axis and offset_m of every joint, or use a device that turns joints.")


def with_gripper(open_at: float = 0.04, closed_at: float = 0.0) -> RobotDescription:
    from hardware.description import GripperDescription, Joint

    grip = Joint("grip", 0.0, 0.04, 0.08, 1.0)
    return replace(
        ROBOT, joints=(*ROBOT.joints, grip), gripper=GripperDescription("grip", open_at, closed_at)
    )


def test_gripper_opens_and_closes_beside_the_motion() -> None:
    """A press opens it at the joint's speed, the next one closes it; the arm moves on meanwhile."""
    robot = with_gripper()
    drive, at_rad = OperatorDrive(robot), np.append(READY, 0.0)
    up = OperatorInput(True, twist=np.array([0.0, 0.0, 0.2, 0.0, 0.0, 0.0]))
    opened = follow(drive, [replace(up, gripper_toggle=True)] + [up] * 49, at_rad)
    grips = [place[6] for place in opened]
    assert np.diff(grips).max() <= 0.08 * DT_S + 1e-12
    assert grips[-1] == pytest.approx(0.04)
    assert moved(opened[0][:6], opened[-1][:6])[2] == pytest.approx(0.2 * 0.25, abs=2e-3)
    closed = follow(drive, [replace(up, gripper_toggle=True)] + [up] * 29, opened[-1])
    assert closed[-1][6] == pytest.approx(0.0)
    half = follow(drive, [replace(up, gripper=0.5)] * 30, closed[-1])
    assert half[-1][6] == pytest.approx(0.02)


def test_gripper_keeps_its_grip_when_the_switch_is_pressed_again() -> None:
    """Closed around an object of 15 mm: it is measured there, and still commanded to 0."""
    drive, at_rad = OperatorDrive(with_gripper()), np.append(READY, 0.015)
    still = OperatorInput(True, twist=np.zeros(6))
    target_rad = drive.next(still, at_rad, np.append(READY, 0.0), DT_S)
    assert target_rad is not None
    assert target_rad[6] == 0.0
    drive.release()
    target_rad = drive.next(replace(still, gripper_toggle=True), at_rad, np.append(READY, 0.0), DT_S)
    assert target_rad is not None
    assert target_rad[6] == pytest.approx(0.08 * DT_S)  # it opens


def test_leader_without_a_gripper_leaves_it_alone() -> None:
    drive, at_rad = OperatorDrive(with_gripper()), np.append(READY, 0.01)
    target_rad = drive.next(OperatorInput(True, position_rad=READY + 0.05), at_rad, None, DT_S)
    assert target_rad == pytest.approx(np.append(READY + 0.05, 0.01))
