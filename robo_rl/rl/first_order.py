"""First-order policy optimisation: gradients of the cost through a differentiable simulator.

Each update flies all lanes for `horizon` steps, adds up the cost and follows its exact gradient (analytic policy
gradient; Xu et al. 2022, "Accelerated Policy Learning with Parallel Differentiable Simulation", without its critic).
Lanes go on from where the last update left them, cut off from its graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from robo_rl.core.errors import RoboRLError
from robo_rl.core.settings import at_least, check_settings


class DifferentiableEnv(Protocol):
    """Lanes that step together and keep the gradient: columns are lanes."""

    num: int
    obs: Tensor  # (o, n) now

    def restart(self) -> None: ...

    def detach(self) -> None: ...

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """action (a, n) -> (cost (n,), ended (n,) bool)."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class ColumnPolicy(Protocol):
    """A module that acts on columns."""

    def columns(self, x: Tensor) -> Tensor: ...


@dataclass
class FirstOrderConfig:
    """Adam with a linearly falling rate on the mean cost per step."""

    updates: int = at_least(1, 900)
    horizon: int = at_least(1, 32)  # steps that a gradient reaches back
    lr: float = at_least(0.0, 1.5e-2)
    final_lr: float = at_least(0.0, 1e-5)
    grad_clip: float = at_least(0.0, 1.0)


class FirstOrder:
    """Owns the optimiser and the count of updates. Raises RoboRLError when the gradient is not finite."""

    def __init__(self, policy: nn.Module, env: DifferentiableEnv, config: FirstOrderConfig) -> None:
        check_settings(config)
        self.policy, self.env, self.config, self.updates = policy, env, config, 0
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=config.lr, fused=True)
        env.restart()

    @property
    def done(self) -> bool:
        return self.updates >= self.config.updates

    @property
    def env_steps(self) -> int:
        return self.updates * self.config.horizon * self.env.num

    def update(self) -> dict[str, Tensor]:
        """One rollout and one step of the optimiser. Logs are tensors: cost per step, gradient norm, flights ended."""
        cfg, env = self.config, self.env
        env.detach()
        act = cast("ColumnPolicy", self.policy).columns
        total, ended = torch.zeros(env.num), torch.zeros(())
        for _ in range(cfg.horizon):
            cost, over = env.step(act(env.obs))
            total, ended = total + cost, ended + over.sum()
        loss = total.mean() / cfg.horizon
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), cfg.grad_clip)
        if not torch.isfinite(norm):
            raise RoboRLError(
                f"The gradient of update {self.updates} is not finite (cost {float(loss.detach()):g}). Lower lr, or "
                "shorten horizon: a gradient through many steps of a tumbling craft can explode."
            )
        done = self.updates / cfg.updates
        for group in self.optimizer.param_groups:
            group["lr"] = cfg.lr * (1.0 - done) + cfg.final_lr
        self.optimizer.step()
        self.updates += 1
        return {"train/cost": loss.detach(), "train/grad_norm": norm, "train/ended": ended}

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "env": self.env.state_dict(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.env.load_state_dict(state["env"])
        self.updates = int(state["updates"])
