"""Parts of a TD target: the next decision of SAC or TD3, and the heads that value it (REDQ)."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.rl.off_policy.context import LearnerContext


def next_action(
    batch: Batch, actor: Any, target_actor: Any, alpha: Tensor, context: LearnerContext
) -> tuple[Float[Tensor, "b d"], Float[Tensor, " b"] | None]:
    """(u of the next decision, entropy bonus of a soft backup).

    SAC samples its actor (Haarnoja et al. 2018); TD3 adds clipped noise to the target actor's action (target
    smoothing, Fujimoto et al. 2018). The bonus is None for a hard backup.
    """
    cfg, x = context.cfg, context.actor_input(batch.next_obs, batch.next_ctx)
    if cfg.actor == "gaussian":
        u, log_prob = actor.sample(x, context.normal(len(x)))
        return u, -alpha * log_prob if cfg.entropy_in_target else None
    noise = context.normal(len(x)).mul_(cfg.target_std).clamp_(-cfg.target_clip, cfg.target_clip)
    return noise.add_(target_actor.mode(x)).clamp_(-1.0, 1.0), None


def repeated(batch: Batch, draws: int) -> Batch:
    """The batch with every row repeated, copy after copy, without its pictures."""
    if draws == 1:
        return batch
    columns = [item.name for item in fields(batch) if item.name not in ("pictures", "next_pictures")]
    wide: dict[str, Any] = {name: torch.cat([getattr(batch, name)] * draws) for name in columns}
    return Batch(**wide)


def highest(target: Float[Tensor, "... n"], draws: int, rows: int) -> Float[Tensor, "... b"]:
    """Highest target of the copies of each row, n = draws * b: CQL's max-target backup (Kumar et al. 2020).

    All draws are valued by the same critics. The discount is not negative, so the highest target is that of
    the highest value.
    """
    return target if draws == 1 else target.unflatten(-1, (draws, rows)).amax(dim=-2)


def subset_min(q: Float[Tensor, "k b"], size: int, generator: torch.Generator) -> Float[Tensor, " b"]:
    """Minimum over `size` random heads (REDQ, Chen et al. 2021); over all heads if there are no more."""
    if size >= len(q) == 2:
        return torch.minimum(q[0], q[1])  # on a CPU half the time of amin
    return q[_subset(len(q), size, generator)].amin(dim=0)


def reduce_heads(q: Float[Tensor, "k b"], context: LearnerContext) -> Float[Tensor, "..."]:
    """Value of the next decision by `target_reduce`: (b,), or (k, b) if each head learns from its own."""
    cfg = context.cfg
    if cfg.target_reduce == "mean":
        return q.mean(dim=0)
    return subset_min(q, cfg.target_subset, context.generator) if cfg.target_reduce == "min" else q


def lowest_of_subset(
    outputs: Float[Tensor, "k b n"], q: Float[Tensor, "k b"], context: LearnerContext
) -> Float[Tensor, "b n"]:
    """Outputs of the head with the lowest Q, among `target_subset` random heads."""
    heads = _subset(len(q), context.cfg.target_subset, context.generator)
    outputs, lowest = outputs[heads], q[heads].argmin(dim=0)
    return outputs.gather(0, lowest.view(1, -1, 1).expand(1, -1, outputs.shape[-1])).squeeze(0)


def _subset(heads: int, size: int, generator: torch.Generator) -> Tensor | slice:
    """`size` random heads, or all if there are no more."""
    if size >= heads:
        return slice(None)
    return torch.randperm(heads, generator=generator, device=generator.device)[:size]
