"""Conservative term of the critics' loss: CQL (Kumar et al. 2020), calibrated as in Cal-QL (Nakamoto et al.
2023).
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import GaussianActor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.losses import Info, conservative_loss


def conservative_term(
    batch: Batch,
    q: Float[Tensor, "k b"],
    critic: CriticEnsemble,
    actor: GaussianActor,
    context: LearnerContext,
) -> tuple[Tensor, Info]:
    """The gap of `conservative_loss` on sampled actions.

    Candidates in every state, `conservative_actions` of each kind: uniform actions, the actor's for this
    state, and the actor's for the next one.
    """
    b, n = len(batch.reward), context.cfg.conservative_actions
    obs, ctx = (value.repeat_interleave(n, 0) for value in (batch.obs, batch.ctx))
    following = context.actor_input(batch.next_obs, batch.next_ctx).repeat_interleave(n, 0)
    with torch.no_grad():
        uniform = context.uniform(b * n)
        x = torch.cat([context.actor_input(obs, ctx), following])
        u, log_prob = actor.sample(x, context.normal(len(x)))
    candidates = context.map.to_critic(torch.cat([uniform, u]), ctx.repeat(3, 1))
    values = critic(context.critic_input(obs).repeat(3, 1), candidates)
    q_uniform, q_actor = values.split([b * n, 2 * b * n], dim=1)
    return conservative_loss(
        q,
        q_uniform.view(-1, b, n),
        torch.cat([part.view(-1, b, n) for part in q_actor.chunk(2, dim=1)], dim=-1),
        torch.cat([part.view(b, n) for part in log_prob.chunk(2)], dim=-1),
        batch.mc_return,
        context.map.dim,
    )
