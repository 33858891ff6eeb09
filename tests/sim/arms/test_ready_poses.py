"""Start poses of arms: where the tool is, and that environments of one process share them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from robo_rl.core.errors import ConfigError
from sim.arms.chain import KinematicChain
from sim.arms.ready_poses import Box, ReadyPoses
from sim.arms.robot import PANDA
from sim.asset_files import ASSETS
from sim.bodies.rotation import axis_z
from sim.engines.scene import compile_scene

BOX: Box = ((0.45, -0.1, 0.2), (0.5, 0.1, 0.3))


def panda() -> KinematicChain:
    return KinematicChain(compile_scene(ASSETS / "lift.xml", PANDA.path), PANDA)


def test_the_tool_is_in_the_box_and_points_down() -> None:
    chain = panda()
    q_rad, tool = ReadyPoses(chain, PANDA, BOX).draw(torch.linspace(0.0, 1.0, 100))
    low, high = (tool.m.new_tensor(corner) for corner in BOX)
    assert (tool.m > low - 1e-3).all()
    assert (tool.m < high + 1e-3).all()
    assert (axis_z(tool.quat)[:, 2] < -0.999).all()
    assert chain.place(q_rad)[0].m.allclose(tool.m)


def test_a_few_poses_out_of_reach_are_counted() -> None:
    """With its base turned to the back, the arm misses less than one per cent of the poses."""
    turned = replace(PANDA, home_rad=(3.0, *PANDA.home_rad[1:]))
    with pytest.raises(ConfigError, match=r"cannot point its tool down in \d of 2048 poses in the box"):
        ReadyPoses(panda(), turned, ((0.42, -0.12, 0.16), (0.58, 0.12, 0.28)))


def test_an_equal_chain_computes_nothing_anew() -> None:
    """The poses take most of the time in which an environment is made; another box or home has its own."""
    chain, again = panda(), panda()
    assert chain is not again
    assert chain == again
    assert hash(chain) == hash(again)
    poses, uniform = ReadyPoses(chain, PANDA, BOX), torch.tensor([0.1, 0.7])
    assert ReadyPoses(again, PANDA, BOX)._q_rad is poses._q_rad
    turned = replace(PANDA, home_rad=(0.3, *PANDA.home_rad[1:]))
    for robot, box in ((PANDA, (BOX[0], (0.5, 0.1, 0.35))), (turned, BOX)):
        assert not ReadyPoses(chain, robot, box).draw(uniform)[0].equal(poses.draw(uniform)[0])


def test_chains_of_other_numbers_differ() -> None:
    chain = panda()
    scene = compile_scene(ASSETS / "lift.xml", PANDA.path)
    scene.model.body_pos[chain.bodies[-1], 2] += 0.01
    assert KinematicChain(scene, PANDA) != chain
    assert KinematicChain(compile_scene(ASSETS / "lift.xml", PANDA.path), PANDA, dtype=torch.float32) != chain
