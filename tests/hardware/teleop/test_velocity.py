"""Teleoperation by joint velocities and twists: motion, dead-man rule and limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.description import load_description
from hardware.kinematics import forward_kinematics, tool_jacobian
from hardware.messages import Flag, JointJog, JointTrajectory, Twist
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.teleop.velocity import VelocityTeleop
from hardware.topics import INTERVENTION, JOINT_JOG, SAFE, TWIST
from tests.hardware.arm_descriptions import NAMES, arm
from tests.hardware.nodes.fakes import LagArm

ZERO, NONE = np.zeros(3), np.zeros(3)


def jog(stamp_s: float, *velocities: float, names: tuple[str, ...] = NAMES) -> JointJog:
    return JointJog(stamp_s, names, np.array(velocities))


class Cell:
    """A simulated arm with its filter, and a program that publishes at 25 Hz, as joystick nodes do."""

    def __init__(self, **robot: Any) -> None:
        self.world, self.arm, self.said, self.sent = (
            InProcessWorld(),
            LagArm(),
            list[str](),
            list[JointTrajectory](),
        )
        self.robot = arm(**robot)
        SimArmNode(self.world.bus("robot"), self.arm, 50.0, arm())
        self.filter = SafetyFilterNode(self.world.bus("filter"), self.robot, arm=True, say=self.said.append)
        self.bus = self.world.bus("program")
        self.jog, self.twist = JOINT_JOG.publisher(self.bus), TWIST.publisher(self.bus)
        self.intervene = INTERVENTION.publisher(self.bus)
        SAFE.subscribe(self.bus, lambda message, at: self.sent.append(message))
        self.speak: Callable[[float], None] = lambda now_s: None
        self.bus.timer(0.04, lambda: self.speak(self.world.now()))
        self.run(0.2)

    def run(self, seconds: float) -> None:
        end_s = self.world.now() + seconds
        self.bus.spin(lambda: self.world.now() >= end_s - 1e-9)


def test_joint_jog_moves_its_joints_during_an_intervention() -> None:
    """0.5 rad/s of one joint of three for 1 s, at 25 messages a second; then the arm rests."""
    cell = Cell()
    begun_rad = cell.arm.place.copy()
    cell.speak = lambda now_s: cell.jog(jog(now_s, 0.5, names=("b",)))
    cell.run(0.5)
    assert cell.arm.place == pytest.approx(begun_rad, abs=1e-9)
    assert any("publish true on teleop/intervention" in sentence for sentence in cell.said)
    cell.intervene(Flag(True))
    cell.run(1.0)
    cell.speak = lambda now_s: None
    cell.run(0.4)
    moved_rad = cell.arm.place - begun_rad
    assert moved_rad[1] == pytest.approx(0.5, abs=0.08)
    assert moved_rad[[0, 2]] == pytest.approx([0.0, 0.0], abs=1e-6)
    stood_rad = cell.arm.place.copy()
    cell.run(0.3)
    assert cell.arm.place == pytest.approx(stood_rad, abs=2e-3)


def test_jog_without_stamps_is_limited_in_velocity() -> None:
    """100 rad/s becomes 2 rad/s of this arm, and the motion ends at the range."""
    cell = Cell()
    cell.intervene(Flag(True))
    cell.speak = lambda now_s: cell.jog(jog(0.0, 100.0, 0.0, 0.0))
    cell.run(0.3)
    steps = np.diff([message.position_rad[0, 0] for message in cell.sent])
    assert steps.max() <= 2.0 * 0.02 * 2 + 1e-9
    assert cell.arm.place[0] > 0.2
    cell.run(1.0)
    assert cell.arm.place[0] <= 1.0 + 1e-6


def test_twist_moves_the_tool() -> None:
    """The simulated arm's tool rises at 0.05 m/s for 1 s: 0.05 m, within 5 mm, and hardly aside."""
    robot = load_description("sim_arm")
    follow, forward = VelocityTeleop(robot), forward_kinematics(robot)
    place_rad = np.array([0.1, 0.6, 1.0, 0.0, 0.5, 0.0])
    begun_m, up_m_s = forward(place_rad)[-1], np.array([0.0, 0.0, 0.05])
    for tick in range(50):
        assert not follow.take(Twist(1.0 + 0.02 * tick, up_m_s, NONE), 0.02 * tick)
        target_rad = follow.next(place_rad, 0.02 * tick)
        assert target_rad is not None
        place_rad = target_rad
    moved_m = forward(place_rad)[-1] - begun_m
    assert moved_m == pytest.approx([0.0, 0.0, 0.05], abs=0.005)


def test_fast_twist_keeps_its_direction() -> None:
    """10 m/s: the fastest joint turns at its limit, and the others keep their share."""
    robot = load_description("sim_arm")
    slow, fast = VelocityTeleop(robot), VelocityTeleop(robot)
    place_rad, way = np.array([0.1, 0.6, 1.0, 0.0, 0.5, 0.0]), np.array([1.0, 0.5, 0.2])
    steps = []
    for follow, speed_m_s in ((slow, 1e-3), (fast, 10.0)):
        assert not follow.take(Twist(1.0, speed_m_s * way, NONE), 0.0)
        target_rad = follow.next(place_rad, 0.0)
        assert target_rad is not None
        steps.append(target_rad - place_rad)
    assert np.abs(steps[1] / robot.column("velocity_rad_s")).max() == pytest.approx(0.02)
    assert steps[1] / np.linalg.norm(steps[1]) == pytest.approx(steps[0] / np.linalg.norm(steps[0]), abs=1e-6)


def test_jacobian_equals_finite_differences() -> None:
    """Central differences of 1e-6 rad; the first joint turns the tool about the vertical."""
    robot = load_description("sim_arm")
    jacobian, forward = tool_jacobian(robot), forward_kinematics(robot)
    place_rad = np.random.default_rng(0).uniform(-1.0, 1.0, 6)
    nudges = 1e-6 * np.eye(6)
    slopes = [(forward(place_rad + d)[-1] - forward(place_rad - d)[-1]) / 2e-6 for d in nudges]
    assert jacobian(place_rad)[:3] == pytest.approx(np.array(slopes).T, abs=1e-8)
    assert jacobian(place_rad)[3:, 0] == pytest.approx([0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("message", "cure"),
    [
        (jog(1.0, 0.1, names=("wrist",)), "expected joints of a, b, c"),
        (jog(1.0, 0.1, 0.1, names=("a", "a")), "names a joint twice"),
        (jog(1.0, names=("a",)), "displacements are not followed: send velocities"),
        (jog(1.0, np.nan, 0.0, 0.0), "not a finite number"),
        (Twist(1.0, ZERO, ZERO, "tool0"), "expected 'base_link', the frame_id of the robot's description"),
        (Twist(1.0, ZERO + np.inf, ZERO), "not a finite number"),
        (Twist(1.0, ZERO + 1e300, ZERO), "expected m/s and rad/s"),
        (Twist(np.nan, ZERO, ZERO), "stamp is not a finite number"),
    ],
)
def test_dropped_messages_are_reported_with_a_remedy(message: JointJog | Twist, cure: str) -> None:
    follow = VelocityTeleop(arm())
    assert cure in follow.take(message, 0.0)
    assert follow.next(ZERO, 0.0) is None


def test_twist_without_kinematics_is_reported() -> None:
    """The description of the UR5e has no axes."""
    said = VelocityTeleop(load_description("ur5e")).take(Twist(1.0, ZERO, ZERO), 0.0)
    assert "give axis and offset_m of every joint, or send teleop/joint_jog" in said


def test_repeated_and_older_messages_are_dropped_until_the_filter_is_armed_again() -> None:
    follow = VelocityTeleop(arm())
    assert not follow.take(jog(5.0, 0.1, 0.0, 0.0), 0.0)
    for stamp_s in (5.0, 4.0, 0.0):
        assert "let stamps grow" in follow.take(jog(stamp_s, 0.2, 0.0, 0.0), 0.0)
    follow.forget_stamps()
    assert not follow.take(replace(jog(4.0, 0.1, 0.0, 0.0)), 0.0)
