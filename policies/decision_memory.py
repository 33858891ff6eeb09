"""Memory of the last decisions in every lane, for policies that read it; see `robo_rl.core.conditioning`."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.lanes import Lanes
from robo_rl.core.shapes import Float


class DecisionMemory:
    """`rows` (n, K, 1 + c), the newest decision last; zeros where an episode had fewer decisions.

    shape: (K, 1 + c).
    """

    def __init__(self, shape: tuple[int, int], num_envs: int, device: torch.device | str = "cpu") -> None:
        self.rows: Float[Tensor, "n K c1"] = torch.zeros(num_envs, *shape, device=device)

    def reset(self, lanes: Lanes) -> None:
        """Forget all decisions of these lanes."""
        lanes.write(self.rows, 0.0)

    def push(self, lanes: Lanes, moment: Float[Tensor, "k c"]) -> None:
        """Append the newest decision of these lanes; the oldest is forgotten."""
        newest = torch.cat([torch.ones_like(moment[:, :1]), moment], dim=1).unsqueeze(1)
        lanes.write(self.rows, torch.cat([lanes.read(self.rows)[:, 1:], newest], dim=1))
