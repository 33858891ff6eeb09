"""Shapes that viewers draw: where the simulator has them, for any position of the arm."""

from __future__ import annotations

import json

import mujoco
import numpy as np
import pytest
from numpy import ndarray

from hardware.bus.in_process import InProcessWorld
from hardware.description import RobotDescription, load_description
from hardware.nodes.sim_robot import Drawable, SimArmNode
from hardware.topics import SCENE
from robo_rl.apps.recording.scene import parse_scene
from sim.arms.arm6.body import SimulatedArm
from sim.arms.arm6.gripper import gripping_arm
from sim.arms.arm6.peg_cell import PegCell


def link_frames(robot: RobotDescription, q: ndarray) -> list[tuple[ndarray, ndarray]]:
    """(origin, rotation) of the frame of each joint but the gripper's, by the description's chain."""
    frames, place, turn = [], np.zeros(3), np.eye(3)
    for joint, angle in zip(robot.joints, q, strict=True):
        if joint.axis is None or joint.offset_m is None:
            continue
        x, y, z = joint.axis
        skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
        place = place + turn @ np.array(joint.offset_m)
        turn = turn @ (np.eye(3) + np.sin(angle) * skew + (1 - np.cos(angle)) * skew @ skew)
        frames.append((place, turn))
    return frames


@pytest.mark.parametrize("name", ["sim_arm", "sim_arm_gripper"])
def test_shapes_are_where_the_simulator_has_them(name: str) -> None:
    """Three positions: centres by the description's chain equal those of MuJoCo, and so do long axes."""
    body = PegCell(3).body if name == "sim_arm" else gripping_arm()
    robot, rng = load_description(name), np.random.default_rng(0)
    for _ in range(3):
        q = rng.uniform(body.low_rad, body.high_rad)
        body.data.qpos[: len(q)], body.data.qpos[len(q) :] = q, q[-1]
        mujoco.mj_forward(body.model, body.data)
        frames, found = link_frames(robot, q), []
        for shape in parse_scene(json.dumps(body.shapes())):
            place_m, turn, local = np.array(shape.pos_m), np.empty(9), np.zeros(3)
            mujoco.mju_quat2Mat(turn, np.array(shape.quat))
            if shape.slides is not None:
                local = q[shape.slides.joint] * np.array(shape.slides.axis)
            origin, link = (np.zeros(3), np.eye(3)) if shape.link < 0 else frames[shape.link]
            found.append((*(origin + link @ (place_m + local)), *(link @ turn.reshape(3, 3))[:, 2]))
        there = np.hstack([body.data.geom_xpos, body.data.geom_xmat[:, [2, 5, 8]]])
        assert len(found) == (12 if name == "sim_arm" else 9)
        for row in found:
            assert np.abs(there - np.array(row)).max(axis=1).min() < 1e-4


def test_a_reset_tells_where_the_block_is_now() -> None:
    """One message at the start and one after each reset; the block's hole is in its middle."""
    world, cell, heard = InProcessWorld(), PegCell(0), list[str]()
    assert isinstance(cell, Drawable)
    assert isinstance(SimulatedArm(), Drawable)
    bus = world.bus("viewer")
    SCENE.subscribe(bus, lambda message, _: heard.append(message.text))
    robot = world.bus("sim_robot")
    SimArmNode(robot, cell, 100.0, load_description("sim_arm"))
    world.run(lambda: world.now() > 0.1)
    assert bus.call("sim_robot/reset", timeout_s=1.0)[0]
    world.run(lambda: len(heard) == 2)
    middle_m = [np.mean([s.pos_m for s in parse_scene(text) if s.kind == "box"], axis=0) for text in heard]
    assert np.abs(middle_m[0] - middle_m[1]).max() > 0.01
    assert middle_m[1][:2] == pytest.approx(cell.body.data.mocap_pos[1][:2], abs=1e-4)
