"""First-order policy optimisation: gradients of the cost through a differentiable simulator.

Each update flies all lanes for `horizon` steps, adds up the cost and follows its exact gradient (analytic
policy gradient). With `value` a learned cost-to-go stands at the end of every window, so that what comes
after it counts too: short-horizon actor-critic, Xu et al. 2022, "Accelerated Policy Learning with Parallel
Differentiable Simulation". Lanes go on from where the last update left them, cut off from its graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.settings import check_settings, setting
from robo_rl.rl.differentiable.cost_to_go import CostToGo, Window


@runtime_checkable
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


@runtime_checkable
class EndingEnv(DifferentiableEnv, Protocol):
    """One that also tells how its lanes ended: what learning a cost-to-go needs."""

    final_obs: Tensor  # (o, n) after the last step, before ended lanes began anew
    terminated: Tensor  # (n,) bool: of the lanes that ended in it, those that the task ended, not the clock


@runtime_checkable
class ColumnPolicy(Protocol):
    """A module that acts on columns."""

    def columns(self, x: Tensor) -> Tensor: ...


@dataclass
class FirstOrderConfig:
    """Adam with a linearly falling rate on the mean cost per step."""

    updates: int = setting(900, at_least=1)
    horizon: int = setting(32, "steps that a gradient reaches back", at_least=1)
    lr: float = setting(1.5e-2, at_least=0.0)
    final_lr: float = setting(1e-5, "learning rate at the last update", at_least=0.0)
    grad_clip: float = setting(1.0, "norm bound of the gradient; 0 is none", at_least=0.0)
    value: bool | None = setting(
        None, "learn the cost-to-go behind the horizon too; none: where it suits the task"
    )
    beyond: bool | None = setting(
        None, "with value: an end by the task is no end of the cost; none: where it suits the task"
    )
    gamma: float = setting(
        0.99, "discount of a step, where the cost-to-go is learned", at_least=0.0, at_most=1.0
    )


class FirstOrder:
    """Owns the optimiser and the count of updates. Raises RoboRLError when the gradient is not finite."""

    def __init__(self, policy: nn.Module, env: DifferentiableEnv, config: FirstOrderConfig) -> None:
        check_settings(config)
        self.policy, self.env, self.config, self.updates = policy, env, config, 0
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=config.lr, fused=True)
        if config.value and not isinstance(env, EndingEnv):
            raise ConfigError(
                "value=true cannot be used here: these flights do not tell how they ended. Leave it out."
            )
        env.restart()
        self.value = CostToGo(env.obs, getattr(policy, "scale", None), config.gamma) if config.value else None

    @property
    def done(self) -> bool:
        return self.updates >= self.config.updates

    @property
    def env_steps(self) -> int:
        return self.updates * self.config.horizon * self.env.num

    def update(self) -> dict[str, Tensor]:
        """One rollout and one step of the optimiser. Logs are tensors: cost per step, gradient norm, flights
        ended.
        """
        cfg = self.config
        self.env.detach()
        loss, logs, window = self._plain() if self.value is None else self._valued(self.value)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), cfg.grad_clip or math.inf)
        if not torch.isfinite(norm):
            raise RoboRLError(
                f"The gradient of update {self.updates} is not finite (cost {float(loss.detach()):g}). Lower "
                "lr, or shorten horizon: a gradient through many steps of a tumbling craft can explode."
            )
        done = self.updates / cfg.updates
        for group in self.optimizer.param_groups:
            group["lr"] = cfg.lr * (1.0 - done) + cfg.final_lr
        self.optimizer.step()
        if self.value is not None and window is not None:
            logs["train/value_loss"] = self.value.learn(window, 1.0 - done)
        self.updates += 1
        return logs | {"train/grad_norm": norm}

    def _plain(self) -> tuple[Tensor, dict[str, Tensor], None]:
        """Mean cost per step of the window."""
        cfg, env = self.config, self.env
        act = cast("ColumnPolicy", self.policy).columns
        total, ended = torch.zeros(env.num), torch.zeros(())
        for _ in range(cfg.horizon):
            cost, over = env.step(act(env.obs))
            total, ended = total + cost, ended + over.sum()
        loss = total.mean() / cfg.horizon
        return loss, {"train/cost": loss.detach(), "train/ended": ended}, None

    def _valued(self, value: CostToGo) -> tuple[Tensor, dict[str, Tensor], Window]:
        """Discounted cost of the window and, where a flight goes on behind it, the cost-to-go.

        A flight that the task ended has no more cost, one that the clock ended would have had; the next
        flight in its lane is not discounted by its predecessor's age. With `beyond` the first would have gone
        on costing as well: where all costs are positive, leaving the box would otherwise be the cheapest
        thing to do.
        """
        cfg, env = self.config, cast("EndingEnv", self.env)
        act = cast("ColumnPolicy", self.policy).columns
        total, weight, window = torch.zeros(env.num), torch.ones(env.num), Window()
        for _ in range(cfg.horizon):
            obs = env.obs
            cost, over = env.step(act(obs))
            total, weight = total + weight * cost, weight * cfg.gamma
            dead = torch.zeros_like(over) if cfg.beyond else env.terminated
            window.add(obs, env.final_obs, cost, over, dead)
            if (cut := over & ~dead).any():
                total = total + weight * value.steady(env.final_obs) * cut
            weight = torch.where(over, 1.0, weight)
        total = total + weight * value.steady(env.obs)
        logs = {"train/cost": window.mean_cost(), "train/ended": window.num_ended()}
        return total.mean() / cfg.horizon, logs, window

    def state_dict(self) -> dict[str, Any]:
        value = {} if self.value is None else {"value": self.value.state_dict()}
        return value | {
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
        if self.value is not None:
            self.value.load_state_dict(state["value"])
