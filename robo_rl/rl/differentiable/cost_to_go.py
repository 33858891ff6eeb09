"""Cost-to-go network for first-order policy optimisation, fitted to TD(lambda) targets.

    target_t = c_t + gamma ((1 - lambda) V'(o_{t+1}) + lambda target_{t+1}),   V' the target network

The network outputs the cost per step, (1 - gamma) V, whose scale does not depend on gamma.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Bool, Float

HIDDEN = 64
LAMBDA = 0.95
LR = 2e-3
TARGET_DECAY = 0.8  # decay of the target network's moving average, per update
ROUNDS = 4  # minibatches per update; each holds an equal share of the window


@dataclass
class Window:
    """Steps of one rollout, detached from its graph."""

    obs: list[Float[Tensor, "o n"]] = field(default_factory=list)
    after: list[Float[Tensor, "o n"]] = field(default_factory=list)  # the next observation
    cost: list[Float[Tensor, " n"]] = field(default_factory=list)
    ended: list[Bool[Tensor, " n"]] = field(default_factory=list)
    terminated: list[Bool[Tensor, " n"]] = field(default_factory=list)

    def add(self, obs: Tensor, after: Tensor, cost: Tensor, ended: Tensor, terminated: Tensor) -> None:
        columns = (self.obs, self.after, self.cost, self.ended, self.terminated)
        for column, value in zip(columns, (obs, after, cost, ended, terminated), strict=True):
            column.append(value.detach())

    def mean_cost(self) -> Tensor:
        return torch.stack(self.cost).mean()

    def num_ended(self) -> Tensor:
        return torch.stack(self.ended).sum().float()


class CostToGo:
    """The value network V, its target network and its optimiser.

    obs: (o, n), an observation, which gives the input size. scale: factors that bring its entries to about
    one.
    """

    def __init__(self, obs: Float[Tensor, "o n"], scale: Float[Tensor, " o"] | None, gamma: float) -> None:
        self.gamma, self.scale = gamma, torch.ones(len(obs)) if scale is None else scale
        self.net = nn.Sequential(
            nn.Linear(len(obs), HIDDEN), nn.ELU(), nn.Linear(HIDDEN, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, 1)
        )
        self.target = deepcopy(self.net).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=LR, fused=True)

    def target_value(self, obs: Float[Tensor, "o n"]) -> Float[Tensor, " n"]:
        """V' of the target network: differentiable in the observation, its own weights are frozen."""
        out: Tensor = self.target((obs * self.scale.unsqueeze(1)).T)[:, 0] / (1.0 - self.gamma)
        return out

    def learn(self, window: Window, share: float) -> Float[Tensor, ""]:
        """Mean squared error of the cost per step over one pass of training on the window.

        share: fraction of the initial learning rate.
        """
        targets = self.targets(window).flatten() * (1.0 - self.gamma)
        obs = (torch.stack(window.obs) * self.scale.unsqueeze(1)).transpose(1, 2).flatten(0, 1)
        for group in self.optimizer.param_groups:
            group["lr"] = LR * max(share, 0.05)
        total = torch.zeros(())
        for first in range(ROUNDS):  # every ROUNDS-th lane, with all its steps
            loss = nn.functional.mse_loss(self.net(obs[first::ROUNDS])[:, 0], targets[first::ROUNDS])
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            self.optimizer.step()
            total = total + loss.detach() / ROUNDS
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 1.0 - TARGET_DECAY)
        return total

    @torch.no_grad()
    def targets(self, window: Window) -> Float[Tensor, "t n"]:
        """TD(lambda) targets of every step: no cost after a termination, and no sum crosses the end of an
        episode.
        """
        steps, num = len(window.cost), len(window.cost[0])
        after = torch.stack(window.after).transpose(0, 1).flatten(1)
        values = self.target_value(after).view(steps, num)
        rest, found = values[-1], []
        for t in reversed(range(steps)):
            mixed = (1.0 - LAMBDA) * values[t] + LAMBDA * rest
            mixed = torch.where(window.ended[t], values[t], mixed).masked_fill(window.terminated[t], 0.0)
            rest = window.cost[t] + self.gamma * mixed
            found.append(rest)
        return torch.stack(found[::-1])

    def state_dict(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "slow": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.target.load_state_dict(state["slow"])
        self.optimizer.load_state_dict(state["optimizer"])
