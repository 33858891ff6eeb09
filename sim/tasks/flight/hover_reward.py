"""Rewards of hovering: parts of a cost whose weights grow with the lessons of a curriculum.

    cost = scale * sum_k min(growth_k^lesson, most_k) * part_k
    reward = size * (alive - cost), or size * alive * exp(-cost / alive) with `positive`; 0 after leaving

`l2f` is the reward of Learning to Fly in Seconds (Eschmann et al. 2024, its released code): 2 - 0.5 (5 |p|^2
+ 5 (1 - q_w^2) + 0.01 |v|^2 + 0.01 |a - a_hover|^2); in every lesson the weight of position grows by 1.2 and
those of velocity and action by 1.4, up to 40, 1 and 1. `task` is the cost of the hover task, which
first-order learning minimises, with the same growth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.engines.quad.layout import POS, QUAT, VEL
from sim.tasks.flight.hover import HoverTask

GROUPS = ("position", "velocity", "action", "rest")  # cost terms whose weights grow together


@dataclass(frozen=True, slots=True)
class HoverReward:
    """Cost parts (n, 4) and rewards (n,) of hovering, from states as in sim/engines/quad/layout.py."""

    task: HoverTask
    kind: str = "l2f"  # l2f | task
    size: float = 1.0  # factor of the reward, so that values of a discounted flight are about one
    # True: the reward is positive everywhere, so that leaving the box is worth less than any step in it.
    positive: bool = False
    alive: float = 2.0
    scale: float = 0.5
    growth: tuple[float, float, float, float] = (1.2, 1.4, 1.4, 1.0)  # factor per lesson, for each of GROUPS
    most: tuple[float, float, float, float] = (8.0, 100.0, 100.0, 1.0)  # largest growth: L2F's limits

    def parts(
        self,
        state: Float[Tensor, "17 n"],
        action: Float[Tensor, "4 n"],
        cost: Float[Tensor, " n"],
        hover: Float[Tensor, "4 1"],
    ) -> Float[Tensor, "n 4"]:
        """Cost terms of one step by GROUPS, with the weights of the first lesson. cost: the task's total."""
        if self.kind == "l2f":
            effort = 0.01 * (action - hover).square().sum(0)
            position, velocity = 5.0 * state[POS].square().sum(0), 0.01 * state[VEL].square().sum(0)
            return torch.stack([position, velocity, effort, 5.0 * (1.0 - state[QUAT][0].square())], dim=1)
        terms = self.task.terms(state, action, hover.unbind(0))
        position, velocity = terms["position"], terms["velocity"]
        seen = sum(terms.values(), torch.zeros_like(cost))
        # The task's cost exceeds the sum of its terms by the cost of the change of the action.
        effort = terms["action"] + (cost - seen)
        rest = cost - position - velocity - effort
        return torch.stack([position, velocity, effort, rest], dim=1)

    def reward(self, parts: Float[Tensor, "... 4"], terminated: Bool[Tensor, "..."], lesson: int) -> Tensor:
        """Rewards (...) of steps with these parts and the weights of a lesson; 0 where a flight left."""
        weights = [min(growth**lesson, most) for growth, most in zip(self.growth, self.most, strict=True)]
        cost = self.scale * (parts @ parts.new_tensor(weights))
        reward = self.alive * torch.exp(-cost / self.alive) if self.positive else self.alive - cost
        return self.size * reward.masked_fill(terminated, 0.0)
