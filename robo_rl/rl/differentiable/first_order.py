"""First-order policy optimisation: gradients of the cost through a differentiable simulator.

Each update simulates all lanes for `horizon` steps, sums the cost and descends its exact gradient (analytic
policy gradient). With `value`, a learned cost-to-go is added at the end of every window: the short-horizon
actor-critic of Xu et al. 2022, "Accelerated Policy Learning with Parallel Differentiable Simulation". Each
window continues from the detached last state of the one before.
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
    """Lanes that step together and keep the gradient. Tensors are (feature, lane)."""

    num: int
    obs: Tensor  # (o, n), the current observation

    def restart(self) -> None: ...

    def detach(self) -> None: ...

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """action (a, n) -> (cost (n,), ended (n,) bool)."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class EndingEnv(DifferentiableEnv, Protocol):
    """A differentiable environment that reports how lanes ended, which a learned cost-to-go requires."""

    final_obs: Tensor  # (o, n) after the last step, before ended lanes were reset
    terminated: Tensor  # (n,) bool: lanes that the task ended in this step; a time-out is not included


@runtime_checkable
class ColumnPolicy(Protocol):
    """A module that maps (feature, lane) tensors."""

    def columns(self, x: Tensor) -> Tensor: ...


@dataclass
class FirstOrderConfig:
    """Settings of first-order optimisation: Adam with a linearly decaying rate on the mean cost per step."""

    updates: int = setting(900, at_least=1)
    horizon: int = setting(32, "steps of the window that the gradient passes through", at_least=1)
    lr: float = setting(1.5e-2, at_least=0.0)
    final_lr: float = setting(1e-5, "learning rate at the last update", at_least=0.0)
    grad_clip: float = setting(1.0, "bound on the gradient's norm; 0: no bound", at_least=0.0)
    value: bool | None = setting(None, "learn the cost-to-go after the horizon; none: the task's default")
    bootstrap_terminated: bool | None = setting(
        None, "with value: add the cost-to-go after a termination, too; none: the task's default"
    )
    gamma: float = setting(
        0.99, "discount per step, used with a learned cost-to-go", at_least=0.0, at_most=1.0
    )


def check_value_settings(given: FirstOrderConfig, value: bool) -> None:
    """Raise ConfigError for settings of the learned cost-to-go where none is learned. value: one is."""
    used = {
        "gamma": given.gamma != FirstOrderConfig.gamma,
        "bootstrap_terminated": given.bootstrap_terminated,
    }
    for name in (name for name, differs in used.items() if differs and not value):
        raise ConfigError(
            f"{name}={getattr(given, name)} has no effect without a learned cost-to-go (value=true): "
            "leave it out."
        )


class FirstOrder:
    """Optimiser and update count of a first-order run. Raises RoboRLError if the gradient is not finite."""

    def __init__(self, policy: nn.Module, env: DifferentiableEnv, config: FirstOrderConfig) -> None:
        check_settings(config)
        self.policy, self.env, self.config, self.updates = policy, env, config, 0
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=config.lr, fused=True)
        if config.value and not isinstance(env, EndingEnv):
            raise ConfigError(
                "value=true needs an environment that reports how episodes ended, which this one does not. "
                "Leave it out."
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
        """Logs of one rollout and one step of the optimiser, as tensors: cost per step, gradient norm, ended
        episodes.
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
                "lr, or shorten horizon: the gradient through many steps of a tumbling aircraft can explode."
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
        """Discounted cost of the window plus the cost-to-go where the episode continues after it.

        A termination adds no further cost; a time-out adds the cost-to-go of the last observation. The next
        episode of the lane starts with weight 1. With `bootstrap_terminated`, a termination adds the
        cost-to-go as well: where all costs are positive, leaving the permitted volume would otherwise be the
        cheapest behaviour.
        """
        cfg, env = self.config, cast("EndingEnv", self.env)
        act = cast("ColumnPolicy", self.policy).columns
        total, weight, window = torch.zeros(env.num), torch.ones(env.num), Window()
        for _ in range(cfg.horizon):
            obs = env.obs
            cost, over = env.step(act(obs))
            total, weight = total + weight * cost, weight * cfg.gamma
            dead = torch.zeros_like(over) if cfg.bootstrap_terminated else env.terminated
            window.add(obs, env.final_obs, cost, over, dead)
            if (cut := over & ~dead).any():
                total = total + weight * value.target_value(env.final_obs) * cut
            weight = torch.where(over, 1.0, weight)
        total = total + weight * value.target_value(env.obs)
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
