"""Parts of a TD target: the next decision of SAC or TD3, and the ensemble's value of it (REDQ)."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import Actor, GaussianActor
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.losses import Info, td_target


def next_action(
    batch: Batch, actor: Actor, target_actor: Actor, alpha: Tensor, context: LearnerContext
) -> tuple[Float[Tensor, "b d"], Float[Tensor, " b"] | None]:
    """(u of the next decision, entropy bonus of a soft backup).

    SAC samples its actor (Haarnoja et al. 2018); TD3 adds clipped noise to the target actor's action (target
    smoothing, Fujimoto et al. 2018). The bonus is None for a hard backup.
    """
    cfg, x = context.cfg, context.actor_input(batch.next_obs, batch.next_ctx)
    if isinstance(actor, GaussianActor):
        u, log_prob = actor.sample(x, context.normal(len(x)))
        return u, -alpha * log_prob if cfg.entropy_in_target else None
    noise = (cfg.target_std * context.normal(len(x))).clamp(-cfg.target_clip, cfg.target_clip)
    return (target_actor.mode(x) + noise).clamp(-1.0, 1.0), None


def backup(
    batch: Batch, value: Float[Tensor, " b"], bonus: Float[Tensor, " b"] | None = None
) -> tuple[Float[Tensor, " b"], Info]:
    """(r + discount * (value + bonus), logs of the bonus)."""
    if bonus is None:
        return td_target(batch.reward, batch.discount, value), {}
    target = td_target(batch.reward, batch.discount, value + bonus)
    return target, {"critic/entropy_bonus": (batch.discount * bonus).mean()}


def subset_min(q: Float[Tensor, "k b"], size: int, generator: torch.Generator) -> Float[Tensor, " b"]:
    """Minimum over `size` random heads (REDQ, Chen et al. 2021); over all heads if there are no more."""
    if size < len(q):
        q = q[torch.randperm(len(q), generator=generator, device=q.device)[:size]]
    return q.amin(dim=0)
