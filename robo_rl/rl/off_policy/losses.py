"""Losses of off-policy learning: pure functions of tensors that return (loss, logs)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robo_rl.core.shapes import Float

Info = dict[str, Tensor]


def td_target(
    reward: Float[Tensor, "*#b"], discount: Float[Tensor, "*#b"], next_value: Float[Tensor, "*#b"]
) -> Float[Tensor, "*#b"]:
    """r + discount * V(s'). `discount` is gamma^steps, and 0 where the task has ended.

    All (b,), or next values (b, atoms) with the others (b, 1).
    """
    return torch.addcmul(reward, discount, next_value)


def floored_target(
    target: Float[Tensor, " b"], floor: Float[Tensor, " b"]
) -> tuple[Float[Tensor, " b"], Info]:
    """max(y, Monte-Carlo return of this decision's episode) (MCAC, Wilcox et al. 2022, 2210.07432); NaN: no
    floor.

    In a deterministic environment, the best policy does at least as well as the episode did. In a stochastic
    one, lucky returns are overrated. Both are sums of rewards without the penalty of the actor's loss.
    """
    raised = floor > target  # never for NaN
    return torch.where(raised, floor, target), {"critic/floored": raised.float().mean()}


def critic_loss(q: Float[Tensor, "k b"], target: Float[Tensor, "*#heads b"]) -> tuple[Tensor, Info]:
    """Mean squared error per head, summed over heads, so that each head learns as if it were alone.

    target: (b,) for all heads, or each head's own (k, b). NaN targets (Monte-Carlo returns that are not known
    yet) are masked.
    """
    known = torch.isfinite(target)
    error = torch.where(known, q - torch.where(known, target, 0.0), 0.0)
    loss = error.square().mean(dim=1).sum()
    return loss, {
        "critic/loss": loss.detach(),
        "critic/q": q.detach().mean(),
        "critic/q_abs_max": q.detach().abs().max(),
    }


def critic_gradient(
    q: Float[Tensor, "k b"], target: Float[Tensor, "*#heads b"], logs: bool = True
) -> tuple[Float[Tensor, "k b"], Info]:
    """(d `critic_loss` / dq = 2 (q - y) / b, logs of `critic_loss`); 0 where the target is not finite.

    logs: False: none.
    """
    finite = (target * 0.0) == 0.0  # half the time of isfinite
    error, rows = torch.where(finite, q - target, 0.0), q.shape[1]
    grad, each = error * (2.0 / rows), error.view(-1)
    if not logs:
        return grad, {}
    return grad, {
        "critic/loss": torch.dot(each, each) / rows,
        "critic/q": q.mean(),
        "critic/q_abs_max": torch.linalg.vector_norm(q, torch.inf),
    }


def categorical_loss(
    logits: Float[Tensor, "k b n"], q: Float[Tensor, "k b"], target: Float[Tensor, "... b n"]
) -> tuple[Tensor, Info]:
    """Cross-entropy -sum_j p_j log softmax(logits)_j: mean over the batch, sum over heads.

    Rows of zeros in `target` (returns that are not known yet) add nothing. `critic/target_at_bounds` is the
    probability of the first and the last atom: if it grows, the returns exceed v_min or v_max.
    """
    entropy = -(target * torch.log_softmax(logits, dim=-1)).sum(-1)
    loss = entropy.mean(dim=1).sum()
    return loss, {
        "critic/loss": loss.detach(),
        "critic/q": q.detach().mean(),
        "critic/q_abs_max": q.detach().abs().max(),
        "critic/target_at_bounds": (target[..., 0] + target[..., -1]).mean(),
    }


def quantile_huber_loss(
    quantiles: Float[Tensor, "k b n"], target: Float[Tensor, "... b m"], levels: Float[Tensor, " n"]
) -> tuple[Tensor, Info]:
    """Quantile regression with a Huber loss of width 1 (QR-DQN, Dabney et al. 2018, eq. 10).

    sum_i mean_j |t_i - 1(e_ij < 0)| h(e_ij), e_ij = y_j - z_i: mean over the batch, sum over heads, where h
    is e^2 / 2 up to 1 and |e| - 1/2 beyond. Targets that are not finite (returns that are not known yet) add
    nothing.
    """
    with torch.no_grad():  # the gradient is written out: autograd would keep several tensors of (k, b, n, m)
        known = torch.isfinite(target)
        error = torch.where(known, target, 0.0).unsqueeze(-2) - quantiles.unsqueeze(-1)
        levels = levels.unsqueeze(-1)
        near = error.clamp(-1.0, 1.0)  # slope of h
        slope = torch.where(error < 0.0, 1.0 - levels, levels).mul_(near).mul_(known.unsqueeze(-2))
        value = (slope * (error - 0.5 * near)).mean(-1).sum(-1).mean(-1).sum()
        gradient = slope.mean(-1) / -quantiles.shape[1]
        q = quantiles.mean(-1)
        info = {"critic/loss": value, "critic/q": q.mean(), "critic/q_abs_max": q.abs().max()}
    return value + (gradient * (quantiles - quantiles.detach())).sum(), info


def sac_actor_loss(
    q: Float[Tensor, " b"], log_prob: Float[Tensor, " b"], alpha: Tensor | float
) -> tuple[Tensor, Info]:
    """E[alpha log pi(u|s) - Q(s, u)] (Haarnoja et al. 2018, eq. 7)."""
    return (alpha * log_prob - q).mean(), {"actor/entropy": -log_prob.detach().mean()}


def conservative_loss(
    q: Float[Tensor, "k b"],
    q_random: Float[Tensor, "k b n"],
    q_actor: Float[Tensor, "k b m"],
    log_prob: Float[Tensor, "b m"],
    mc_return: Float[Tensor, " b"],
    dim: int,
) -> tuple[Tensor, Info]:
    """E[log sum exp Q over other actions - Q(data)], summed over heads (CQL, Kumar et al. 2020, eq. 4).

    Each action is weighted by its inverse density: 2^-dim for uniform actions. The Q of the actor's actions
    is bounded below by the return of the data, which keeps values on its scale (Cal-QL, Nakamoto et al. 2023,
    eq. 5.1); NaN: no bound.
    """
    bound = torch.where(torch.isfinite(mc_return), mc_return, -torch.inf).unsqueeze(-1)
    others = torch.cat([q_random + dim * math.log(2.0), torch.maximum(q_actor, bound) - log_prob], dim=-1)
    gap = (torch.logsumexp(others, dim=-1) - q).mean(dim=1)
    return gap.sum(), {"critic/conservative_gap": gap.detach().mean()}


def distilled_q_loss(
    q: Float[Tensor, " b"], chunk: Float[Tensor, "b Tp a"], goal: Float[Tensor, "b Tp a"], weight: float
) -> tuple[Tensor, Info]:
    """weight * mean |chunk - goal|^2 - mean Q / mean |Q|: FQL's actor loss, with its normalised Q (Park et
    al. 2025, eq. 8).

    Without the normalisation the weight would depend on the scale of the rewards.
    """
    distance = (chunk - goal).square().mean()
    climb = q.mean() / q.detach().abs().mean().clamp(min=1e-6)
    return weight * distance - climb, {"actor/distance": distance.detach().sqrt()}


def expectile_loss(error: Float[Tensor, " b"], expectile: float) -> Tensor:
    """mean |tau - 1(error < 0)| error^2, with error = Q - V (IQL, Kostrikov et al. 2022, eq. 5).

    tau = 0.5 gives half the mean squared error; as tau goes to 1, V goes to the highest Q.
    """
    weight = torch.where(error < 0.0, 1.0 - expectile, expectile)
    return (weight * error.square()).mean()


def residual_penalty(u: Float[Tensor, "b d"], weight: float) -> tuple[Tensor, Info]:
    """weight * E||u||^2: keeps a residual small where the critic has no preference."""
    size = u.detach().square().mean()
    term = weight * u.square().sum(-1).mean() if weight > 0.0 else torch.zeros_like(size)
    return term, {"actor/u_rms": size.sqrt()}


def temperature_gradient(entropy: Tensor, target_entropy: float) -> Tensor:
    """E[-log pi] - target entropy: gradient in log alpha of -log alpha * (log pi + target entropy), which
    raises alpha while the entropy is below its target.
    """
    return entropy.detach() - target_entropy


def norm_bound_terms(log_dual: Tensor, mean_square: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """(actor's term, gradient in the log multiplier) of the Lagrangian of E[shift^2] <= bound per noise
    element (LP-DS).
    """
    excess = mean_square - bound
    return log_dual.exp().detach() * excess, -excess.detach()
