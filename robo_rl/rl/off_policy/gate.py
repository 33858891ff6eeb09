"""Gate of a residual: the correction u, or the base's own action (u = 0), by the critics' choice.

Training, exploration and bootstrapping take the larger mean Q (IBRL, Hu et al. 2023; EXPO, Dong et al. 2025).
A deployed or evaluated policy asks for a margin as well. Early in training the critics overrate corrections,
so the margin is large at first and falls to 0 with the remaining steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.action_map import ActionMap
from robo_rl.core.shapes import Float
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.gradients.acting import CompiledCritic


def gated(
    u: Float[Tensor, "b d"],
    state: Float[Tensor, "b s"],
    ctx: Float[Tensor, "b c"],
    critic: CriticEnsemble | CompiledCritic,
    action_map: ActionMap,
    margin: float = 0.0,
) -> Float[Tensor, "b d"]:
    """u where its Q exceeds that of u = 0 by `margin` (see `CriticEnsemble.compare`), else 0."""
    zero = torch.zeros_like(u)
    actor, base = action_map.to_critic(u, ctx), action_map.to_critic(zero, ctx)
    q_actor, q_base = critic.compare(state, actor, base, margin)
    return torch.where((q_actor > q_base).unsqueeze(-1), u, zero)


def margin_at(gate_margin: float, env_steps: int, first: int, last: int) -> float:
    """Margin after `env_steps`: gate_margin up to `first`, then linear to 0 at `last`."""
    return gate_margin * min(1.0, max(0.0, (last - env_steps) / (last - first)))
