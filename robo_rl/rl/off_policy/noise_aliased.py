"""DSRL-NA (Wagenmaker et al. 2025): steering with two critics, one of actions and one of the noise that makes
them.

Q_A(s, a) learns by temporal differences on the executed chunks, whoever produced them; Q_W(s, w) is regressed
to Q_A(s, base(s, w)), and the actor climbs Q_W. Many noises alias to one action, so Q_A needs far less data
than a critic of noise would. The regression draws w where the actor can go: half from the actor itself, half
uniform over its range. The published code draws N(0, I) alone, and leaves Q_W unfitted wherever |w| is
larger.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from robo_rl.core.action_map import ActionMap, LatentMap
from robo_rl.core.errors import ConfigError
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import GaussianActor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.flat import flatten_parameters
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import Info, critic_loss, td_target


@runtime_checkable
class Decoder(Protocol):
    """The base policy, as this learner uses it."""

    execute: int

    def sample_from(self, features: Tensor, noise: Tensor) -> Tensor: ...


class NoiseAliasedLearner(OffPolicyLearner):
    """`critic` is Q_W, which acting and gating use; `action_critic` is Q_A."""

    def __init__(
        self,
        obs_dim: int,
        action_map: ActionMap,
        cfg: LearnerConfig,
        generator: torch.Generator,
        base: Decoder,
    ) -> None:
        if not isinstance(action_map, LatentMap):
            raise ConfigError("method.algorithm=noise_aliased needs method.map.kind=steering.")
        if cfg.conservative > 0.0:
            raise ConfigError(
                "method.algorithm=noise_aliased has no conservative term: set learner.conservative=0."
            )
        super().__init__(obs_dim, action_map, cfg, generator)
        self.latent, self.base = action_map, base
        action_dim = base.execute * action_map.shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31 - 1, (1,), generator=generator)))
            self.action_critic, self.action_target = (
                CriticEnsemble(obs_dim + action_dim, cfg.hidden, cfg.heads, cfg.layer_norm) for _ in range(2)
            )
        self.action_target.load_state_dict(self.action_critic.state_dict())
        self._action_flat = flatten_parameters(self.action_critic)
        self._pairs[0] = (
            flatten_parameters(self.action_target),
            self._action_flat,
        )  # Q_W is not bootstrapped
        self.action_opt = torch.optim.Adam([self._action_flat], lr=cfg.lr_critic, fused=True)

    def decode(self, obs: Float[Tensor, "b f"], noise: Float[Tensor, "b k"]) -> Float[Tensor, "b executed"]:
        """The chunk that the base executes from this noise, flattened."""
        chunk = self.base.sample_from(obs, noise.view(-1, *self.latent.shape))
        return chunk[:, : self.base.execute].flatten(1)

    def _critic_step(self, batch: Batch, target: Float[Tensor, " b"]) -> Info:
        """Both critics: Q_A to `target`, then Q_W to Q_A."""
        loss, info = critic_loss(self.action_critic(batch.obs, batch.action), target)
        self._step(self.action_opt, self._action_flat, loss, self.action_critic)
        noise = self._noise_where_the_actor_goes(batch)
        with torch.no_grad():
            values = self.action_critic(batch.obs, self.decode(batch.obs, noise))
        alias = (self.critic(batch.obs, noise) - values).square().mean(dim=1).sum()
        self._step(self.critic_opt, self._critic_flat, alias, self.critic)
        return info | {"critic/alias_loss": alias.detach()}

    @torch.no_grad()
    def _noise_where_the_actor_goes(self, batch: Batch) -> Float[Tensor, "b k"]:
        u = self._scattered(torch.cat([batch.obs, batch.ctx], dim=-1))
        uniform = torch.rand(u.shape, generator=self.generator) * 2.0 - 1.0
        # Every second row: a mixed batch is ordered by store, and each store needs both kinds of noise.
        second = (torch.arange(len(u)) % 2 == 1).unsqueeze(1)
        return self.map.to_critic(torch.where(second, uniform, u), batch.ctx)

    def _scattered(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b d"]:
        """The actor's u for rows of a batch, which are no lanes: noise without the memory and the spread of
        lanes.
        """
        if isinstance(self.actor, GaussianActor):
            return self.actor.sample(x, self._normal(len(x)))[0]
        return (self.actor.mode(x) + self.cfg.explore_std * self._normal(len(x))).clamp(-1.0, 1.0)

    @torch.no_grad()
    def _target(self, batch: Batch) -> tuple[Float[Tensor, " b"], Info]:
        u, bonus = self._next_action(batch)
        if self.cfg.gate:
            u = self._gated(u, batch.next_obs, batch.next_ctx, self.critic)
        return self._soft_target(batch, self._next_value(batch, u), bonus)

    @torch.no_grad()
    def _base_target(self, batch: Batch) -> Float[Tensor, " b"]:
        zero = torch.zeros(len(batch.reward), self.map.dim)
        return td_target(batch.reward, batch.discount, self._next_value(batch, zero))

    def _next_value(self, batch: Batch, u: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        chunk = self.decode(batch.next_obs, self.map.to_critic(u, batch.next_ctx))
        return self._subset_min(self.action_target(batch.next_obs, chunk))

    def weights(self) -> dict[str, dict[str, Tensor]]:
        more = {name: getattr(self, name).state_dict() for name in ("action_critic", "action_target")}
        copies = {name: {key: value.clone() for key, value in state.items()} for name, state in more.items()}
        return super().weights() | copies

    def load_weights(self, weights: Mapping[str, Mapping[str, Tensor]] | None) -> None:
        super().load_weights(weights)
        self.action_opt.state.clear()

    def state_dict(self) -> dict[str, Any]:
        names = ("action_critic", "action_target", "action_opt")
        return super().state_dict() | {
            name: copy.deepcopy(getattr(self, name).state_dict()) for name in names
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for name in ("action_critic", "action_target", "action_opt"):
            getattr(self, name).load_state_dict(state[name])
