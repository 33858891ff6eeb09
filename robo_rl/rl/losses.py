"""Losses of off-policy learning: pure functions of tensors that return (loss, what to log)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

Info = dict[str, Tensor]


def td_target(
    reward: Float[Tensor, " b"], discount: Float[Tensor, " b"], next_value: Float[Tensor, " b"]
) -> Float[Tensor, " b"]:
    """r + discount * V(s'). `discount` is gamma^steps, and 0 where the task has ended."""
    return reward + discount * next_value


def critic_loss(q: Float[Tensor, "k b"], target: Float[Tensor, " b"]) -> tuple[Tensor, Info]:
    """Mean squared error per head, summed over heads, so that each head learns as if it were alone.

    A NaN target (a Monte-Carlo return that is not known yet) takes no part.
    """
    known = torch.isfinite(target)
    error = torch.where(known, q - torch.where(known, target, 0.0), 0.0)
    loss = error.square().mean(dim=1).sum()
    return loss, {
        "critic/loss": loss.detach(),
        "critic/q": q.detach().mean(),
        "critic/q_abs_max": q.detach().abs().max(),
    }


def sac_actor_loss(q: Float[Tensor, " b"], log_prob: Float[Tensor, " b"], alpha: Tensor | float) -> tuple[Tensor, Info]:
    """E[alpha log pi(u|s) - Q(s, u)] (Haarnoja et al. 2018, eq. 7)."""
    return (alpha * log_prob - q).mean(), {"actor/entropy": -log_prob.detach().mean()}


def residual_penalty(u: Float[Tensor, "b d"], weight: float) -> tuple[Tensor, Info]:
    """weight * E||u||^2: keeps a residual small wherever the critic sees no difference."""
    size = u.square().sum(-1).mean()
    return weight * size, {"actor/u_rms": u.detach().square().mean().sqrt()}


def temperature_loss(log_alpha: Tensor, log_prob: Float[Tensor, " b"], target_entropy: float) -> Tensor:
    """-log alpha * (log pi + target entropy): raises alpha while the entropy is below its target."""
    return -log_alpha * (log_prob.detach().mean() + target_entropy)


def norm_bound_loss(log_dual: Tensor, mean_square: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """Lagrangian of E[shift^2] <= bound per noise element (LP-DS): (the actor's term, the multiplier's loss)."""
    excess = mean_square - bound
    return log_dual.exp().detach() * excess, -log_dual * excess.detach()
