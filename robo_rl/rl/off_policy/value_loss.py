"""Losses of critics: squared error of Q, or cross-entropy of a distribution of returns on atoms.

A target is a number per decision (b,), the same for all heads, or (k, b), each head's own. C51 has
distributions in its place: (b, n) or (k, b, n). `returns_target` makes targets of returns that are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.support import Support
from robo_rl.rl.off_policy.config import support_of
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.losses import Info, categorical_loss, critic_loss, td_target
from robo_rl.rl.off_policy.targets import lowest_of_subset, reduce_heads

Bonus = Float[Tensor, " b"] | float


@runtime_checkable
class ValueLoss(Protocol):
    """Targets and loss of an ensemble of critics."""

    def target(self, batch: Batch, critic: CriticEnsemble, action: Tensor, bonus: Bonus) -> Tensor:
        """Target of a decision from `critic` at the next one, `action` in the map's form. bonus: entropy."""
        ...

    def returns_target(self, returns: Float[Tensor, " b"]) -> Tensor:
        """Target that states these returns; NaN where one is unknown."""
        ...

    def loss(
        self, batch: Batch, critic: CriticEnsemble, target: Tensor
    ) -> tuple[Tensor, Info, Float[Tensor, "k b"]]:
        """(loss, logs, Q of the batch's actions)."""
        ...


class Regression:
    """Q learns the mean of its targets: (Q - y)^2, with y = r + discount * (Q' + bonus)."""

    def __init__(self, context: LearnerContext) -> None:
        self.context = context

    def target(self, batch: Batch, critic: CriticEnsemble, action: Tensor, bonus: Bonus) -> Tensor:
        q = self.context.evaluate(critic, self.context.critic_input(batch.next_obs), action)
        q = reduce_heads(q, self.context)
        return td_target(batch.reward, batch.discount, q + bonus)

    def returns_target(self, returns: Float[Tensor, " b"]) -> Tensor:
        return returns

    def loss(
        self, batch: Batch, critic: CriticEnsemble, target: Tensor
    ) -> tuple[Tensor, Info, Float[Tensor, "k b"]]:
        x = self.context.critic_input(batch.obs)
        q = self.context.evaluate(critic, x, batch.critic_action)
        return (*critic_loss(q, target), q)


class HlGauss(Regression):
    """The targets of `Regression`, learned as histograms (Farebrother et al. 2024)."""

    def __init__(self, context: LearnerContext, support: Support) -> None:
        super().__init__(context)
        self.support = support

    def histogram(self, target: Tensor) -> Float[Tensor, "... b n"]:
        """Probabilities of the atoms for a target; 0 everywhere where it is unknown."""
        return known_only(target, self.support.smooth)

    def loss(
        self, batch: Batch, critic: CriticEnsemble, target: Tensor
    ) -> tuple[Tensor, Info, Float[Tensor, "k b"]]:
        x = self.context.critic_input(batch.obs)
        logits = self.context.evaluate(critic.outputs, x, batch.critic_action)
        q = self.support.mean(logits)
        return (*categorical_loss(logits, q, self.histogram(target)), q)


class C51(HlGauss):
    """The distribution of returns: that of the next decision, shifted and projected (Bellemare et al. 2017).

    Of several heads the one with the lowest mean gives the target, as in FastTD3 (Seo et al. 2025), or each
    head its own, as in FastSAC.
    """

    def target(self, batch: Batch, critic: CriticEnsemble, action: Tensor, bonus: Bonus) -> Tensor:
        x = self.context.critic_input(batch.next_obs)
        logits = self.context.evaluate(critic.outputs, x, action)
        if self.context.cfg.target_reduce == "min":
            logits = lowest_of_subset(logits, self.support.mean(logits), self.context)
        weights = torch.softmax(logits, dim=-1)
        value = self.support.values(weights.device).expand(len(batch.reward), -1)
        if isinstance(bonus, Tensor):
            value = value + bonus.unsqueeze(-1)
        returns = td_target(batch.reward.unsqueeze(-1), batch.discount.unsqueeze(-1), value)
        return self.support.project(returns.expand_as(weights), weights)

    def returns_target(self, returns: Float[Tensor, " b"]) -> Tensor:
        one = torch.ones(len(returns), 1, device=returns.device)
        return known_only(returns, lambda known: self.support.project(known.unsqueeze(-1), one))

    def histogram(self, target: Tensor) -> Float[Tensor, "... b n"]:
        return target


def make_value_loss(context: LearnerContext) -> ValueLoss:
    """The loss that `critic_loss` names."""
    support = support_of(context.cfg)
    if support is None:
        return Regression(context)
    return (C51 if context.cfg.critic_loss == "c51" else HlGauss)(context, support)


def known_only(returns: Tensor, histogram: Callable[[Tensor], Tensor]) -> Float[Tensor, "... n"]:
    """Histograms of returns; rows of zeros where one is NaN."""
    known = torch.isfinite(returns)
    return histogram(torch.where(known, returns, 0.0)) * known.unsqueeze(-1)
