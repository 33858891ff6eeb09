"""Hovering as rewards: the parts of a cost, and how a curriculum makes them weigh more.

    cost = scale * sum_k growth_k^lesson * part_k reward = size * (alive - cost), or size * alive * exp(-cost
    / alive) with `positive`; 0 where a flight left its box

`l2f` is the reward of Learning to Fly in Seconds (Eschmann et al. 2024, its released code): 2 - 0.5 (5 |p|^2
+ 5 (1 - q_w^2) + 0.01 |v|^2 + 0.01 |a - a_hover|^2), with position times 1.2 and velocity and action times
1.4 in every lesson, up to 40, 1 and 1. `task` is the cost that first-order learning follows, by its terms and
with the same growth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.engines.quad.layout import POS, QUAT, VEL
from sim.tasks.flight.hover import HoverTask

GROUPS = ("position", "velocity", "action", "rest")  # what grows alike


@dataclass(frozen=True, slots=True)
class HoverReward:
    """Rows are drones in what comes out; the state is as in sim/engines/quad/layout.py."""

    task: HoverTask
    kind: str = "l2f"  # l2f | task
    size: float = 1.0  # of the whole reward: values of a discounted flight are then about one
    positive: bool = (
        False  # above 0 wherever the craft is, so that leaving the box is worth less than any step in it
    )
    alive: float = 2.0
    scale: float = 0.5
    growth: tuple[float, float, float, float] = (1.2, 1.4, 1.4, 1.0)  # per lesson, of GROUPS
    most: tuple[float, float, float, float] = (8.0, 100.0, 100.0, 1.0)  # L2F's caps over its first weights

    def parts(
        self,
        state: Float[Tensor, "17 n"],
        action: Float[Tensor, "4 n"],
        cost: Float[Tensor, " n"],
        hover: Float[Tensor, "4 1"],
    ) -> Float[Tensor, "n 4"]:
        """Weighted cost terms of one step, by GROUPS."""
        if self.kind == "l2f":
            effort = 0.01 * (action - hover).square().sum(0)
            position, velocity = 5.0 * state[POS].square().sum(0), 0.01 * state[VEL].square().sum(0)
            return torch.stack([position, velocity, effort, 5.0 * (1.0 - state[QUAT][0].square())], dim=1)
        terms = self.task.terms(state, action, hover.unbind(0))
        position, velocity = terms["position"], terms["velocity"]
        seen = sum(terms.values(), torch.zeros_like(cost))
        effort = terms["action"] + (
            cost - seen
        )  # what the task adds to its terms is the change of the action
        rest = cost - position - velocity - effort
        return torch.stack([position, velocity, effort, rest], dim=1)

    def reward(self, parts: Float[Tensor, "... 4"], terminated: Bool[Tensor, "..."], lesson: int) -> Tensor:
        weights = [min(growth**lesson, most) for growth, most in zip(self.growth, self.most, strict=True)]
        cost = self.scale * (parts @ parts.new_tensor(weights))
        reward = self.alive * torch.exp(-cost / self.alive) if self.positive else self.alive - cost
        return self.size * reward.masked_fill(terminated, 0.0)
