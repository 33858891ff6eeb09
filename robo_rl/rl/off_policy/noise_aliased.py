"""DSRL-NA (Wagenmaker et al. 2025): steering with a critic of actions and a critic of the noise behind them.

Q_A(s, a) learns by temporal differences on executed chunks, whoever produced them. Q_W(s, w) is regressed to
Q_A(s, base(s, w)), and the actor climbs Q_W. Many noises lead to one action, so Q_A needs far less data than
a critic of noise alone. The regression draws w from the actor's range: half from the actor itself, half
uniform. The published code draws N(0, I) alone and leaves Q_W unfitted wherever |w| is larger.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.action_map import LatentMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.optim.flat import FlatAdam, flatten_parameters
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.exploration import independent_sample
from robo_rl.rl.off_policy.gate import gated
from robo_rl.rl.off_policy.losses import Info, critic_loss, td_target
from robo_rl.rl.off_policy.networks import Networks, make_action_critics
from robo_rl.rl.off_policy.targets import reduce_heads
from robo_rl.rl.off_policy.value_loss import Bonus


@runtime_checkable
class Decoder(Protocol):
    """The base policy, as these critics use it. `sample_from` takes stored observations (`Batch.obs`)."""

    execute: int

    def sample_from(self, features: Tensor, noise: Tensor) -> Tensor: ...


class NoiseAliasedCritics:
    """`critic` is Q_W, for acting and gating; `action_critic` is Q_A, with a target network."""

    def __init__(self, obs_dim: int, nets: Networks, context: LearnerContext, base: Decoder) -> None:
        cfg = context.cfg
        if not isinstance(context.map, LatentMap):
            raise ConfigError("method.algorithm=noise_aliased needs method.map.kind=steering.")
        if cfg.conservative > 0.0:
            raise ConfigError(
                "method.algorithm=noise_aliased has no conservative term: set learner.conservative=0."
            )
        if cfg.critic_loss != "mse":
            raise ConfigError(
                f"method.algorithm=noise_aliased learns Q by squared errors, found learner.critic_loss="
                f"{cfg.critic_loss}. Set learner.critic_loss=mse."
            )
        self.context, self.latent, self.base, self.actor = context, context.map, base, nets.actor
        self.critic = self.bootstrap_gate = nets.critic  # Q_W is not bootstrapped: no target network
        width = context.views.critic_width(obs_dim) + base.execute * self.latent.shape[1]
        self.action_critic, self.action_target = make_action_critics(width, context)
        self.critic_opt = context.adam(self.critic, cfg.lr_critic)
        self.action_opt = context.adam(self.action_critic, cfg.lr_critic)
        self._target_flat = flatten_parameters(self.action_target)

    def decode(self, obs: Float[Tensor, "b f"], noise: Float[Tensor, "b k"]) -> Float[Tensor, "b executed"]:
        """The chunk that the base executes from this noise, flattened."""
        chunk = self.base.sample_from(obs, noise.view(-1, *self.latent.shape))
        return chunk[:, : self.base.execute].flatten(1)

    def fit(self, batch: Batch, target: Tensor, logs: bool = True) -> Info:
        """Q_A to `target`, then Q_W to Q_A."""
        evaluate, state = self.context.evaluate, self.context.critic_input(batch.obs)
        loss, info = critic_loss(evaluate(self.action_critic, state, batch.action), target)
        self.action_opt.descend(self.context.head_weight * loss)
        noise = self.regression_noise(batch)
        with torch.no_grad():
            values = evaluate(self.action_critic, state, self.decode(batch.obs, noise))
        alias = (evaluate(self.critic, state, noise) - values).square().mean(dim=1).sum()
        self.critic_opt.descend(self.context.head_weight * alias)
        return info | {"critic/alias_loss": alias.detach()}

    @torch.no_grad()
    def regression_noise(self, batch: Batch) -> Float[Tensor, "b k"]:
        """Noise to fit Q_W on: in turns the actor's, with exploration, and uniform over its range."""
        u = independent_sample(self.actor, self.context.actor_input(batch.obs, batch.ctx), self.context)
        uniform = self.context.uniform(len(u))
        # In turns: a mixed batch is ordered by store, and each store needs both kinds of noise.
        second = (torch.arange(len(u), device=u.device) % 2 == 1).unsqueeze(1)
        return self.latent.to_critic(torch.where(second, uniform, u), batch.ctx)

    def backup(self, batch: Batch, u: Float[Tensor, "b d"], bonus: Bonus) -> Tensor:
        chunk = self.decode(batch.next_obs, self.latent.to_critic(u, batch.next_ctx))
        state = self.context.critic_input(batch.next_obs)
        q = self.context.evaluate(self.action_target, state, chunk)
        return td_target(batch.reward, batch.discount, reduce_heads(q, self.context) + bonus)

    def gated_backup(self, batch: Batch, u: Float[Tensor, "b d"], bonus: Bonus) -> Tensor:
        state = self.context.critic_input(batch.next_obs)
        return self.backup(batch, gated(u, state, batch.next_ctx, self.critic, self.latent), bonus)

    def returns_target(self, returns: Float[Tensor, " b"]) -> Tensor:
        return returns

    @torch.no_grad()
    def follow(self) -> None:
        self._target_flat.lerp_(self.action_opt.flat, self.context.cfg.tau)

    def networks(self) -> dict[str, CriticEnsemble]:
        return {
            "critic": self.critic,
            "action_critic": self.action_critic,
            "action_target": self.action_target,
        }

    def optimizers(self) -> dict[str, FlatAdam]:
        return {"critic_opt": self.critic_opt, "action_opt": self.action_opt}
