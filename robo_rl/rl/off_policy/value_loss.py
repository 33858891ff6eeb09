"""Losses of critics: squared error of Q, cross-entropy of a distribution of returns on atoms, or quantiles.

A target is a number per decision (b,), the same for all heads, or (k, b), each head's own. C51 and quantiles
have distributions in its place: (b, n) or (k, b, n). `returns_target` makes targets of known returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.support import Quantiles, Support
from robo_rl.rl.off_policy.config import support_of
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.losses import (
    Info,
    categorical_loss,
    critic_gradient,
    critic_loss,
    quantile_huber_loss,
    td_target,
)
from robo_rl.rl.off_policy.targets import lowest_of_subset, reduce_heads

Bonus = Float[Tensor, " b"] | float


@runtime_checkable
class ValueLoss(Protocol):
    """Targets and loss of an ensemble of critics."""

    def q(self, outputs: Float[Tensor, "k b n"]) -> Float[Tensor, "k b"]:
        """Q of the outputs of critics."""
        ...

    def target(self, batch: Batch, outputs: Float[Tensor, "k b n"], bonus: Bonus) -> Tensor:
        """Target of a decision, from the critics' outputs for the next one. bonus: entropy."""
        ...

    def returns_target(self, returns: Float[Tensor, " b"]) -> Tensor:
        """Target that states these returns; NaN where one is unknown."""
        ...

    def loss(self, outputs: Float[Tensor, "k b n"], target: Tensor) -> tuple[Tensor, Info]:
        """(loss, logs) of the critics' outputs for the batch's actions."""
        ...

    def gradient(
        self, outputs: Float[Tensor, "k b n"], target: Tensor, logs: bool = True
    ) -> tuple[Tensor, Info]:
        """(gradient of `loss` in the outputs, logs). logs: False: they may be left out."""
        ...


class Regression:
    """Q learns the mean of its targets: (Q - y)^2, with y = r + discount * (Q' + bonus)."""

    def __init__(self, context: LearnerContext) -> None:
        self.context = context

    def q(self, outputs: Float[Tensor, "k b n"]) -> Float[Tensor, "k b"]:
        return outputs.squeeze(-1)

    def target(self, batch: Batch, outputs: Float[Tensor, "k b n"], bonus: Bonus) -> Tensor:
        q = reduce_heads(self.q(outputs), self.context)
        return td_target(batch.reward, batch.discount, q + bonus)

    def returns_target(self, returns: Float[Tensor, " b"]) -> Tensor:
        return returns

    def loss(self, outputs: Float[Tensor, "k b n"], target: Tensor) -> tuple[Tensor, Info]:
        return critic_loss(self.q(outputs), target)

    def gradient(
        self, outputs: Float[Tensor, "k b n"], target: Tensor, logs: bool = True
    ) -> tuple[Tensor, Info]:
        grad, info = critic_gradient(self.q(outputs), target, logs)
        return grad.unsqueeze(-1), info


class HlGauss(Regression):
    """The targets of `Regression`, learned as histograms (Farebrother et al. 2024)."""

    def __init__(self, context: LearnerContext, support: Support) -> None:
        super().__init__(context)
        self.support = support

    def histogram(self, target: Tensor) -> Float[Tensor, "... b n"]:
        """Probabilities of the atoms for a target; 0 everywhere where it is unknown."""
        return known_only(target, self.support.smooth)

    def q(self, outputs: Float[Tensor, "k b n"]) -> Float[Tensor, "k b"]:
        return self.support.mean(outputs)

    def loss(self, outputs: Float[Tensor, "k b n"], target: Tensor) -> tuple[Tensor, Info]:
        return categorical_loss(outputs, self.q(outputs), self.histogram(target))

    def gradient(
        self, outputs: Float[Tensor, "k b n"], target: Tensor, logs: bool = True
    ) -> tuple[Tensor, Info]:
        return gradient_by_autograd(self, outputs, target)


class C51(HlGauss):
    """The distribution of returns: that of the next decision, shifted and projected (Bellemare et al. 2017).

    Of several heads the one with the lowest mean gives the target, as in FastTD3 (Seo et al. 2025), or each
    head its own, as in FastSAC, or all give it together.
    """

    def target(self, batch: Batch, outputs: Float[Tensor, "k b n"], bonus: Bonus) -> Tensor:
        logits, reduce = outputs, self.context.cfg.target_reduce
        if reduce == "min":
            logits = lowest_of_subset(logits, self.support.mean(logits), self.context)
        weights = torch.softmax(logits, dim=-1)
        if reduce == "mean":
            weights = weights.mean(dim=0)
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


class QuantileLoss:
    """Quantiles of the return: those of the next decision, shifted (QR-DQN, Dabney et al. 2018).

    Of several heads the one with the lowest mean gives the target, each its own, or each quantile is their
    mean, as in BRO (Nauman et al. 2024).
    """

    def __init__(self, context: LearnerContext, quantiles: Quantiles) -> None:
        self.context, self.quantiles = context, quantiles

    def q(self, outputs: Float[Tensor, "k b n"]) -> Float[Tensor, "k b"]:
        return self.quantiles.mean(outputs)

    def target(self, batch: Batch, outputs: Float[Tensor, "k b n"], bonus: Bonus) -> Tensor:
        reduce = self.context.cfg.target_reduce
        if reduce == "min":
            outputs = lowest_of_subset(outputs, self.q(outputs), self.context)
        elif reduce == "mean":
            outputs = outputs.mean(dim=0)
        value = outputs + (bonus.unsqueeze(-1) if isinstance(bonus, Tensor) else bonus)
        return td_target(batch.reward.unsqueeze(-1), batch.discount.unsqueeze(-1), value)

    def returns_target(self, returns: Float[Tensor, " b"]) -> Tensor:
        return returns.unsqueeze(-1)

    def loss(self, outputs: Float[Tensor, "k b n"], target: Tensor) -> tuple[Tensor, Info]:
        return quantile_huber_loss(outputs, target, self.quantiles.levels(outputs.device))

    def gradient(
        self, outputs: Float[Tensor, "k b n"], target: Tensor, logs: bool = True
    ) -> tuple[Tensor, Info]:
        return gradient_by_autograd(self, outputs, target)


def gradient_by_autograd(
    loss: ValueLoss, outputs: Float[Tensor, "k b n"], target: Tensor
) -> tuple[Tensor, Info]:
    """(gradient of `loss.loss` in the outputs, its logs)."""
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        value, info = loss.loss(leaf, target)
    return torch.autograd.grad(value, leaf)[0], info


def make_value_loss(context: LearnerContext) -> ValueLoss:
    """The loss that `critic_loss` names."""
    support = support_of(context.cfg)
    if support is None:
        return Regression(context)
    if isinstance(support, Quantiles):
        return QuantileLoss(context, support)
    return (C51 if context.cfg.critic_loss == "c51" else HlGauss)(context, support)


def known_only(returns: Tensor, histogram: Callable[[Tensor], Tensor]) -> Float[Tensor, "... n"]:
    """Histograms of returns; rows of zeros where one is NaN."""
    known = torch.isfinite(returns)
    return histogram(torch.where(known, returns, 0.0)) * known.unsqueeze(-1)
