"""Start poses of arms: the tool is in a box and points down.

They are computed once in a process and then drawn from: inverse kinematics at every start would take longer
than the physics of an episode, and would be nearly all of the work of a new environment.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import generator
from robo_rl.core.shapes import Float
from sim.arms.chain import KinematicChain
from sim.arms.robot import ArmRobot
from sim.bodies.pose import Pose

POSES, _LEFT = 2048, 1e-3  # number of poses; largest error of inverse kinematics [m, rad]


Box = tuple[tuple[float, float, float], tuple[float, float, float]]  # low and high corner [m]


class ReadyPoses:
    """A fixed set of poses, the same in every process. Raises ConfigError for a box out of reach."""

    def __init__(self, chain: KinematicChain, robot: ArmRobot, box_m: Box) -> None:
        (x, y, z), (x_high, y_high, z_high) = box_m  # an own task may give lists, which no key may hold
        self._q_rad, self._tool = _solve(chain, robot, ((x, y, z), (x_high, y_high, z_high)))

    def draw(self, uniform: Float[Tensor, " k"]) -> tuple[Float[Tensor, "k j"], Pose]:
        """Poses chosen by uniform numbers in (0, 1): (joint positions [rad], pose of the tool)."""
        index = (uniform * POSES).long().clamp_max(POSES - 1)
        return self._q_rad[index], Pose(self._tool.m[index], self._tool.quat[index])


@lru_cache(maxsize=64)  # of 0.2 MB each
def _solve(chain: KinematicChain, robot: ArmRobot, box_m: Box) -> tuple[Float[Tensor, "p j"], Pose]:
    """Joint positions that bring the tool to points of the box, and its poses there. Nobody writes into them:
    environments share them.
    """
    low, high = (chain.low_rad.new_tensor(corner) for corner in box_m)
    unit = torch.rand(POSES, 3, generator=generator("ready poses", 0)).to(low)
    down = low.new_tensor([0.0, 1.0, 0.0, 0.0]).expand(POSES, 4)
    home = low.new_tensor(robot.home_rad).expand(POSES, -1)
    q_rad, left = chain.inverse(Pose(low + (high - low) * unit, down), home)
    if float(left.max()) > _LEFT:
        missed = int((left > _LEFT).sum())
        raise ConfigError(
            f"{robot.name} cannot point its tool down in {missed} of {POSES} poses in the box {box_m} where "
            "the task starts. Give another robot, or a home_rad from which it can."
        )
    return q_rad, chain.place(q_rad)[0]
