"""Memory of the last decisions in every lane, for policies that read it; see `robo_rl.core.conditioning`."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.lanes import Lanes
from robo_rl.core.shapes import Bool, Float


class DecisionMemory:
    """`rows` (n, K, 1 + c), the newest decision last; zeros where an episode had fewer decisions.

    shape: (K, 1 + c). A decision enters with the next observation: at its own, policy and critics see those
    before it, whether they look before or after the plan.
    """

    def __init__(self, shape: tuple[int, int], num_envs: int, device: torch.device | str = "cpu") -> None:
        self.rows: Float[Tensor, "n K c1"] = torch.zeros(num_envs, *shape, device=device)
        self._moment: Float[Tensor, "n c"] = torch.zeros(num_envs, shape[1] - 1, device=device)
        self._made: Bool[Tensor, " n"] = torch.zeros(num_envs, dtype=torch.bool, device=device)

    def reset(self, lanes: Lanes) -> None:
        """Forget all decisions of these lanes."""
        lanes.write(self.rows, 0.0)
        lanes.write(self._made, False)

    def decide(self, lanes: Lanes, moment: Float[Tensor, "k c"]) -> None:
        """Keep the decision of these lanes at the present observation, which `observe` appends."""
        lanes.write(self._moment, moment)
        lanes.write(self._made, True)

    def observe(self) -> None:
        """Append the decisions since the last call; the oldest are forgotten."""
        newest = torch.cat([torch.ones_like(self._moment[:, :1]), self._moment], dim=1).unsqueeze(1)
        longer = torch.cat([self.rows[:, 1:], newest], dim=1)
        self.rows = torch.where(self._made.view(-1, 1, 1), longer, self.rows)
        self._made = torch.zeros_like(self._made)

    def state_dict(self) -> dict[str, Tensor]:
        return {"memory": self.rows, "memory_moment": self._moment, "memory_made": self._made}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        device = self.rows.device
        self.rows = state["memory"].to(device, copy=True)
        if "memory_made" in state:  # older checkpoints hold decisions that have entered alone
            self._moment = state["memory_moment"].to(device, copy=True)
            self._made = state["memory_made"].to(device, copy=True)
