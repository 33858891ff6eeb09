"""One off-policy learner for every method: SAC or TD3 with an ensemble of critics over an action map."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robo_rl.core.action_map import ActionMap
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import Actor, ActorConfig, GaussianActor, make_actor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.flat import flat_gradient, flatten_parameters
from robo_rl.rl.config import LearnerConfig
from robo_rl.rl.losses import (
    Info,
    critic_loss,
    norm_bound_loss,
    residual_penalty,
    sac_actor_loss,
    td_target,
    temperature_loss,
)


class OffPolicyLearner:
    """Owns actor, critics, their targets and optimisers. Knows the action map only by its protocol.

    All random numbers come from `generator`, so that a restored learner continues bit for bit.
    """

    def __init__(self, obs_dim: int, action_map: ActionMap, cfg: LearnerConfig, generator: torch.Generator) -> None:
        self.map, self.cfg, self.generator = action_map, cfg, generator
        self.updates = 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31 - 1, (1,), generator=generator)))
            self.actor, self.target_actor = self._make_actor(obs_dim), self._make_actor(obs_dim)
            self.critic, self.target = self._make_critic(obs_dim), self._make_critic(obs_dim)
        self.target.load_state_dict(self.critic.state_dict())
        self.target_actor.load_state_dict(self.actor.state_dict())
        self.log_alpha = torch.tensor(cfg.alpha).log().requires_grad_(cfg.auto_alpha)
        self.log_dual = torch.zeros((), requires_grad=cfg.norm_bound > 0.0)
        self._actor_flat, self._critic_flat = flatten_parameters(self.actor), flatten_parameters(self.critic)
        self.actor_opt = torch.optim.Adam([self._actor_flat], lr=cfg.lr_actor, fused=True)
        self.critic_opt = torch.optim.Adam([self._critic_flat], lr=cfg.lr_critic, fused=True)
        duals = [p for p in (self.log_alpha, self.log_dual) if p.requires_grad]
        self.dual_opt = torch.optim.Adam(duals, lr=cfg.lr_actor) if duals else None
        self._pairs = [(flatten_parameters(self.target), self._critic_flat)]
        if cfg.actor == "deterministic":
            self._pairs.append((flatten_parameters(self.target_actor), self._actor_flat))

    def _make_actor(self, obs_dim: int) -> Actor:
        cfg = self.cfg
        hidden, in_dim = tuple(cfg.hidden), obs_dim + self.map.ctx_dim
        return make_actor(ActorConfig(cfg.actor, in_dim, self.map.dim, hidden, cfg.layer_norm, cfg.init_std))

    def _make_critic(self, obs_dim: int) -> CriticEnsemble:
        cfg = self.cfg
        return CriticEnsemble(obs_dim + self.map.critic_dim, cfg.hidden, cfg.heads, cfg.layer_norm)

    # Acting

    @torch.no_grad()
    def act(self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"], explore: bool) -> Float[Tensor, "b d"]:
        """u for these observations; with `gate`, 0 wherever the critics prefer the base."""
        x = torch.cat([obs, ctx], dim=-1)
        u = self._explore(x) if explore else self.actor.mode(x)
        return self._gated(u, obs, ctx, self.critic) if self.cfg.gate else u

    def _explore(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b d"]:
        if isinstance(self.actor, GaussianActor):
            return self.actor.sample(x, self._normal(len(x)))[0]
        return (self.actor.mode(x) + self.cfg.explore_std * self._normal(len(x))).clamp(-1.0, 1.0)

    def _normal(self, rows: int) -> Float[Tensor, "b d"]:
        return torch.randn(rows, self.map.dim, generator=self.generator)

    def _gated(
        self, u: Float[Tensor, "b d"], obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"], critic: CriticEnsemble
    ) -> Float[Tensor, "b d"]:
        zero = torch.zeros_like(u)
        q_actor, q_base = critic.compare(obs, self.map.to_critic(u, ctx), self.map.to_critic(zero, ctx))
        return torch.where((q_actor > q_base).unsqueeze(-1), u, zero)

    # Learning

    def update(self, batch: Batch) -> Info:
        """One critic update, and one actor update every `actor_delay`-th time."""
        info = self._critic_step(batch, self._target(batch))
        self.updates += 1
        if self.updates % self.cfg.actor_delay == 0:
            info |= self._actor_step(batch)
        self._follow()
        return info

    def burn_in(self, batch: Batch, monte_carlo: bool) -> Info:
        """Teach the critics the base's value before the actor moves: Monte-Carlo returns, or TD with u = 0."""
        if monte_carlo:
            target = batch.mc_return
        else:
            zero = torch.zeros(len(batch.reward), self.map.dim)
            value = self._subset_min(self.target(batch.next_obs, self.map.to_critic(zero, batch.next_ctx)))
            target = td_target(batch.reward, batch.discount, value.detach())
        info = self._critic_step(batch, target)
        self._follow()
        return info

    @torch.no_grad()
    def _target(self, batch: Batch) -> Float[Tensor, " b"]:
        x = torch.cat([batch.next_obs, batch.next_ctx], dim=-1)
        entropy: Tensor | float = 0.0
        if isinstance(self.actor, GaussianActor):
            u, log_prob = self.actor.sample(x, self._normal(len(x)))
            if self.cfg.entropy_in_target:
                entropy = -self.log_alpha.exp() * log_prob
        else:
            noise = (self.cfg.target_std * self._normal(len(x))).clamp(-self.cfg.target_clip, self.cfg.target_clip)
            u = (self.target_actor.mode(x) + noise).clamp(-1.0, 1.0)
        if self.cfg.gate:
            u = self._gated(u, batch.next_obs, batch.next_ctx, self.target)
        value = self._subset_min(self.target(batch.next_obs, self.map.to_critic(u, batch.next_ctx)))
        return td_target(batch.reward, batch.discount, value + entropy)

    def _subset_min(self, q: Float[Tensor, "k b"]) -> Float[Tensor, " b"]:
        """Minimum over a random subset of heads (REDQ, Chen et al. 2021)."""
        if self.cfg.target_subset < self.cfg.heads:
            chosen = torch.randperm(self.cfg.heads, generator=self.generator)[: self.cfg.target_subset]
            q = q[chosen]
        return q.amin(dim=0)

    def _critic_step(self, batch: Batch, target: Float[Tensor, " b"]) -> Info:
        loss, info = critic_loss(self.critic(batch.obs, batch.critic_action), target)
        self._step(self.critic_opt, self._critic_flat, loss, self.critic)
        return info

    def _actor_step(self, batch: Batch) -> Info:
        x = torch.cat([batch.obs, batch.ctx], dim=-1)
        gaussian = isinstance(self.actor, GaussianActor)
        if isinstance(self.actor, GaussianActor):
            u, log_prob = self.actor.sample(x, self._normal(len(x)))
        else:
            u, log_prob = self.actor.mode(x), torch.zeros(len(x))
        q = self.critic(batch.obs, self.map.to_critic(u, batch.ctx))
        q = q.amin(dim=0) if self.cfg.actor_reduce == "min" else q.mean(dim=0)
        alpha = self.log_alpha.exp().detach() if gaussian else 0.0
        loss, info = sac_actor_loss(q, log_prob, alpha)
        penalty, size = residual_penalty(u, self.cfg.penalty)
        loss, info = loss + penalty, info | size | {"actor/saturation": (u.detach().abs() > 0.95).float().mean()}
        loss = loss + self._dual_step(u, batch, log_prob, info)
        self._step(self.actor_opt, self._actor_flat, loss, self.actor)
        return info

    def _dual_step(self, u: Tensor, batch: Batch, log_prob: Tensor, info: Info) -> Tensor | float:
        """Move the entropy weight and the norm multiplier; return the multiplier's term of the actor's loss."""
        if self.dual_opt is None:
            return 0.0
        term: Tensor | float = 0.0
        loss = torch.zeros(())
        if self.cfg.auto_alpha:
            loss = loss + temperature_loss(self.log_alpha, log_prob, self.cfg.target_entropy)
            info["actor/alpha"] = self.log_alpha.detach().exp()
        if self.cfg.norm_bound > 0.0:
            shift = self.map.to_critic(u, batch.ctx) - self.map.to_critic(torch.zeros_like(u), batch.ctx)
            term, dual_loss = norm_bound_loss(self.log_dual, shift.square().mean(), self.cfg.norm_bound)
            loss = loss + dual_loss
            info["actor/norm_multiplier"] = self.log_dual.detach().exp()
        self.dual_opt.zero_grad(set_to_none=True)
        loss.backward()
        self.dual_opt.step()
        return term

    def _step(self, optimizer: torch.optim.Optimizer, flat: Tensor, loss: Tensor, module: nn.Module) -> None:
        flat.grad = flat_gradient(loss, module)
        if self.cfg.grad_clip > 0.0:
            nn.utils.clip_grad_norm_([flat], self.cfg.grad_clip)
        optimizer.step()

    @torch.no_grad()
    def _follow(self) -> None:
        for slow, fast in self._pairs:
            slow.lerp_(fast, self.cfg.tau)

    # Saving

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """A copy of the actor's and the critics' weights, to come back to."""
        return {
            name: {key: value.clone() for key, value in getattr(self, name).state_dict().items()}
            for name in ("actor", "target_actor", "critic", "target")
        }

    def load_weights(self, weights: Mapping[str, Mapping[str, Tensor]] | None) -> None:
        """Back to `weights`, or, for None, to an actor that reproduces the base. Moments of the optimisers restart."""
        if weights is None:
            self.actor.restart()
            self.target_actor.restart()
        else:
            for name, state in weights.items():
                getattr(self, name).load_state_dict(state)
        self.actor_opt.state.clear()
        self.critic_opt.state.clear()

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimiser moments, multipliers, update count and generator state; moments are copies."""
        return {
            "actor": self.actor.state_dict(),
            "target_actor": self.target_actor.state_dict(),
            "critic": self.critic.state_dict(),
            "target": self.target.state_dict(),
            "actor_opt": copy.deepcopy(self.actor_opt.state_dict()),
            "critic_opt": copy.deepcopy(self.critic_opt.state_dict()),
            "dual_opt": copy.deepcopy(self.dual_opt.state_dict()) if self.dual_opt else {},
            "log_alpha": self.log_alpha.detach().clone(),
            "log_dual": self.log_dual.detach().clone(),
            "updates": self.updates,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("actor", "target_actor", "critic", "target", "actor_opt", "critic_opt"):
            getattr(self, name).load_state_dict(state[name])
        if self.dual_opt is not None:
            self.dual_opt.load_state_dict(state["dual_opt"])
        with torch.no_grad():
            self.log_alpha.copy_(state["log_alpha"])
            self.log_dual.copy_(state["log_dual"])
        self.updates = int(state["updates"])
        self.generator.set_state(state["generator"])
