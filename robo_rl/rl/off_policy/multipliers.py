"""Lagrange multipliers of the actor's loss: SAC's entropy temperature and the norm bound of LP-DS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.nets.optim.adam import StaticAdam
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.losses import Info, norm_bound_terms, temperature_gradient


class Multipliers:
    """log alpha (SAC's temperature, Haarnoja et al. 2018b) and the log multiplier of the norm bound (LP-DS).

    alpha is tuned with `auto_alpha` and fixed otherwise; the bound is active for `norm_bound` > 0.
    """

    def __init__(self, context: LearnerContext) -> None:
        cfg = context.cfg
        self.context = context
        self._first = torch.tensor(cfg.alpha, device=context.device).log()
        self.log_alpha = self._first.clone().requires_grad_(cfg.auto_alpha)
        self.log_norm = torch.zeros((), device=context.device, requires_grad=cfg.norm_bound > 0.0)
        tuned = [p for p in (self.log_alpha, self.log_norm) if p.requires_grad]
        self.optimizer = StaticAdam(tuned, cfg.lr_actor) if tuned else None

    @property
    def alpha(self) -> Tensor:
        """Entropy weight."""
        return self.log_alpha.exp()

    def step(
        self, u: Float[Tensor, "b d"], ctx: Float[Tensor, "b c"], entropy: Tensor
    ) -> tuple[Tensor | float, Info]:
        """One update of what is tuned. Returns the norm bound's term of the actor's loss, and logs."""
        if self.optimizer is None:
            return 0.0, {}
        cfg, action_map, info = self.context.cfg, self.context.map, Info()
        term: Tensor | float = 0.0
        gradients = []
        if cfg.auto_alpha:
            gradients.append(temperature_gradient(entropy, cfg.target_entropy * action_map.dim))
            info["actor/alpha"] = self.log_alpha.detach().exp()
        if cfg.norm_bound > 0.0:
            shift = action_map.to_critic(u, ctx) - action_map.to_critic(torch.zeros_like(u), ctx)
            term, gradient = norm_bound_terms(self.log_norm, shift.square().mean(), cfg.norm_bound)
            gradients.append(gradient)
            info["actor/norm_multiplier"] = self.log_norm.detach().exp()
        for parameter, gradient in zip(self.optimizer.parameters, gradients, strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(gradient)
        self.optimizer.step()
        return term, info

    @torch.no_grad()
    def restart(self) -> None:
        """Set multipliers and moments to their start."""
        self.log_alpha.copy_(self._first)
        self.log_norm.zero_()
        if self.optimizer is not None:
            self.optimizer.restart()

    @torch.no_grad()
    def start_from(self, earlier: Mapping[str, Any]) -> None:
        """Take the temperature of a `state_dict` if it was tuned there and is tuned here; moments stay."""
        if self.context.cfg.auto_alpha and earlier["optimizer"]:
            self.log_alpha.copy_(earlier["log_alpha"])

    def state_dict(self) -> dict[str, Any]:
        """Multipliers and moments, copied."""
        return {
            "log_alpha": self.log_alpha.detach().clone(),
            "log_norm": self.log_norm.detach().clone(),
            "optimizer": self.optimizer.state_dict() if self.optimizer else {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            self.log_alpha.copy_(state["log_alpha"])
            self.log_norm.copy_(state["log_norm"])
