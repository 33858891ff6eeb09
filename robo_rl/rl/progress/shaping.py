"""Potential-based shaping of the reward (Ng, Harada and Russell 1999), which keeps the best policy.

    r' = r + weight * (gamma^k Phi(s') - Phi(s))

for a decision of k steps. Sums telescope: over an episode of T steps, what is added has the discounted sum
weight * (gamma^T Phi(end) - Phi(start)). An end after which learning counts nothing has potential 0. A
time-out that is bootstrapped is no such end.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Float


class PotentialShaping:
    """Shapes the rewards of decisions before they are stored.

    potential: of rows of features, in [0, 1]. columns: those of a stored observation that it reads.
    timeout_is_failure: a time-out is worth 0, so its potential is 0 too.
    """

    def __init__(
        self,
        potential: Callable[[Tensor], Tensor],
        weight: float,
        *,
        timeout_is_failure: bool,
        columns: slice = slice(None),
    ) -> None:
        self.potential, self.weight, self.columns = potential, weight, columns
        self.timeout_is_failure = timeout_is_failure

    def copied_to(self, device: torch.device | str) -> PotentialShaping:
        """The same with a copy of its model on this device."""
        moved = copy.copy(self)
        if isinstance(self.potential, nn.Module):
            moved.potential = copy.deepcopy(self.potential).to(device)
        return moved

    @torch.no_grad()
    def reward(self, values: Mapping[str, Tensor], gamma: float) -> Float[Tensor, " k"]:
        """Shaped rewards of k decisions. values: obs, next_obs, reward, steps, terminated, truncated."""
        seen = torch.cat([values[name][:, self.columns] for name in ("obs", "next_obs")])
        now, after = self.potential(seen).view(2, -1)
        over = values["terminated"].bool()
        if self.timeout_is_failure:
            over = over | values["truncated"].bool()
        discount = (gamma ** values["steps"].float()).masked_fill(over, 0.0)
        shaped: Tensor = values["reward"] + self.weight * (discount * after - now)
        return shaped
