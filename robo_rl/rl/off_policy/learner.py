"""One off-policy learner for every method: SAC or TD3 with an ensemble of critics over an action map."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robo_rl.core.action_map import ActionMap
from robo_rl.core.views import ALL, Views
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import Actor, ActorConfig, GaussianActor, make_actor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.flat import flat_gradient, flatten_parameters
from robo_rl.rl.off_policy.config import LearnerConfig, check_learner
from robo_rl.rl.off_policy.losses import (
    Info,
    conservative_loss,
    critic_loss,
    floored_target,
    norm_bound_loss,
    residual_penalty,
    sac_actor_loss,
    td_target,
    temperature_loss,
)

NETWORKS = ("actor", "target_actor", "critic", "target")


class OffPolicyLearner:
    """Owns actor, critics, their targets and optimisers. Knows the action map only by its protocol.

    All random numbers come from `generator`, so that a restored learner continues bit for bit. `views`: which
    parts of a stored observation actor and critics see. Raises ConfigError for settings that make no learner.
    """

    def __init__(
        self,
        obs_dim: int,
        action_map: ActionMap,
        cfg: LearnerConfig,
        generator: torch.Generator,
        views: Views = ALL,
    ) -> None:
        check_learner(cfg)
        self.map, self.cfg, self.generator, self.views = action_map, cfg, generator, views
        self.updates = 0
        self._wander = torch.zeros(0, action_map.dim)  # correlated exploration noise of every lane
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
        hidden, in_dim = tuple(cfg.hidden), self.views.actor_width(obs_dim) + self.map.ctx_dim
        norm = cfg.layer_norm if cfg.actor_norm is None else cfg.actor_norm
        return make_actor(
            ActorConfig(
                cfg.actor, in_dim, self.map.dim, hidden, norm, cfg.init_std, activation=cfg.activation
            )
        )

    def _make_critic(self, obs_dim: int) -> CriticEnsemble:
        cfg = self.cfg
        return CriticEnsemble(
            self.views.critic_width(obs_dim) + self.map.critic_dim, cfg.hidden, cfg.heads, cfg.layer_norm,
            doubt=cfg.gate_doubt,
        )  # fmt: skip

    def _x(self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"]) -> Float[Tensor, "b i"]:
        """What the actor sees."""
        return torch.cat([obs[:, self.views.actor], ctx], dim=-1)

    def _state(self, obs: Float[Tensor, "b f"]) -> Float[Tensor, "b s"]:
        """What the critics see beside the action."""
        return obs[:, self.views.critic]

    # Acting

    @torch.no_grad()
    def act(
        self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"], explore: bool
    ) -> Float[Tensor, "b d"]:
        """u for these observations; with `gate`, 0 wherever the critics prefer the base.

        Only what does not explore doubts: a correction that was never tried could not show that it is better.
        """
        x = self._x(obs, ctx)
        u = self._explore(x) if explore else self.actor.mode(x)
        doubt = 0.0 if explore else self.critic.doubt
        return self._gated(u, obs, ctx, self.critic, doubt) if self.cfg.gate else u

    def _explore(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b d"]:
        if isinstance(self.actor, GaussianActor):
            return self.actor.sample(x, self._drift(len(x)))[0]
        return (self.actor.mode(x) + self._spread(len(x)) * self._drift(len(x))).clamp(-1.0, 1.0)

    def _spread(self, rows: int) -> Float[Tensor, "b 1"]:
        """Exploration noise of every lane, in units of u: some lanes show what the actor does by itself,
        others search.

        A lane that only searches seldom succeeds, and returns of several steps would then teach that nothing
        does (mixed noise, as in FastTD3, Seo et al. 2025).
        """
        if rows == 1:
            return torch.full((1, 1), self.cfg.explore_std)
        return self.cfg.explore_std * torch.linspace(self.cfg.explore_least, 1.0, rows).unsqueeze(-1)

    def _drift(self, rows: int) -> Float[Tensor, "b d"]:
        """Exploration noise of unit variance, a first-order autoregression in every row (lane).

        A push that lasts finds what white noise, averaged out by the robot's own inertia, never reaches.
        """
        fresh, rho = self._normal(rows), self.cfg.explore_correlation
        if rho == 0.0:
            return fresh
        if len(self._wander) != rows:
            self._wander = fresh
        else:
            self._wander = rho * self._wander + math.sqrt(1.0 - rho * rho) * fresh
        return self._wander

    def _normal(self, rows: int) -> Float[Tensor, "b d"]:
        return torch.randn(rows, self.map.dim, generator=self.generator)

    def _gated(
        self,
        u: Float[Tensor, "b d"],
        obs: Float[Tensor, "b f"],
        ctx: Float[Tensor, "b c"],
        critic: CriticEnsemble,
        doubt: float = 0.0,
    ) -> Float[Tensor, "b d"]:
        zero = torch.zeros_like(u)
        actor, base = self.map.to_critic(u, ctx), self.map.to_critic(zero, ctx)
        q_actor, q_base = critic.compare(self._state(obs), actor, base, doubt)
        return torch.where((q_actor > q_base).unsqueeze(-1), u, zero)

    # Learning

    def update(self, batch: Batch) -> Info:
        """One critic update, and one actor update every `actor_delay`-th time."""
        target, info = self._target(batch)
        if self.cfg.return_floor:
            target, floored = floored_target(target, batch.return_floor)
            info |= floored
        info |= self._critic_step(batch, target)
        self.updates += 1
        if self.updates % self.cfg.actor_delay == 0:
            info |= self._actor_step(batch)
        if self.updates % self.cfg.target_delay == 0:
            self._follow()
        return info

    def burn_in(self, batch: Batch, monte_carlo: bool) -> Info:
        """Teach the critics the base's value before the actor moves: Monte-Carlo returns, or TD with u =
        0.
        """
        info = self._critic_step(batch, batch.mc_return if monte_carlo else self._base_target(batch))
        self._follow()
        return info

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Info:
        """Mean Q of u = 0 (the base, where there is one) and of the actor's own u, in the states of this
        batch.
        """
        zero = torch.zeros(len(batch.reward), self.map.dim)
        mode = self.actor.mode(self._x(batch.obs, batch.ctx))
        state = self._state(batch.obs)
        named = {"critic/q_base": zero, "critic/q_actor": mode}
        return {
            name: self.critic(state, self.map.to_critic(u, batch.ctx)).mean() for name, u in named.items()
        }

    @torch.no_grad()
    def _base_target(self, batch: Batch) -> Float[Tensor, " b"]:
        zero = torch.zeros(len(batch.reward), self.map.dim)
        value = self._subset_min(
            self.target(self._state(batch.next_obs), self.map.to_critic(zero, batch.next_ctx))
        )
        return td_target(batch.reward, batch.discount, value)

    @torch.no_grad()
    def _target(self, batch: Batch) -> tuple[Float[Tensor, " b"], Info]:
        """The TD target, and what entropy added to it."""
        u, bonus = self._next_action(batch)
        if self.cfg.gate:
            u = self._gated(u, batch.next_obs, batch.next_ctx, self.target)
        value = self._subset_min(
            self.target(self._state(batch.next_obs), self.map.to_critic(u, batch.next_ctx))
        )
        return self._soft_target(batch, value, bonus)

    def _next_action(self, batch: Batch) -> tuple[Float[Tensor, "b d"], Float[Tensor, " b"] | None]:
        """u of the next decision, as bootstrapping needs it, and the entropy bonus of a soft backup."""
        x = self._x(batch.next_obs, batch.next_ctx)
        if isinstance(self.actor, GaussianActor):
            u, log_prob = self.actor.sample(x, self._normal(len(x)))
            return u, -self.log_alpha.exp() * log_prob if self.cfg.entropy_in_target else None
        noise = (self.cfg.target_std * self._normal(len(x))).clamp(
            -self.cfg.target_clip, self.cfg.target_clip
        )
        return (self.target_actor.mode(x) + noise).clamp(-1.0, 1.0), None

    def _soft_target(
        self, batch: Batch, value: Float[Tensor, " b"], bonus: Float[Tensor, " b"] | None
    ) -> tuple[Float[Tensor, " b"], Info]:
        if bonus is None:
            return td_target(batch.reward, batch.discount, value), {}
        target = td_target(batch.reward, batch.discount, value + bonus)
        return target, {"critic/entropy_bonus": (batch.discount * bonus).mean()}

    def _subset_min(self, q: Float[Tensor, "k b"]) -> Float[Tensor, " b"]:
        """Minimum over a random subset of heads (REDQ, Chen et al. 2021)."""
        if self.cfg.target_subset < self.cfg.heads:
            chosen = torch.randperm(self.cfg.heads, generator=self.generator)[: self.cfg.target_subset]
            q = q[chosen]
        return q.amin(dim=0)

    def _critic_step(self, batch: Batch, target: Float[Tensor, " b"]) -> Info:
        q = self.critic(self._state(batch.obs), batch.critic_action)
        loss, info = critic_loss(q, target)
        if self.cfg.conservative > 0.0:
            extra, more = self._conservative(batch, q)
            loss, info = loss + self.cfg.conservative * extra, info | more
        self._step(self.critic_opt, self._critic_flat, loss, self.critic)
        return info

    def _conservative(self, batch: Batch, q: Float[Tensor, "k b"]) -> tuple[Tensor, Info]:
        """Uniform actions and the actor's own, for this state and for the next one, all judged in this
        state.
        """
        assert isinstance(self.actor, GaussianActor)  # check_learner
        b, n = len(batch.reward), self.cfg.conservative_actions
        obs, ctx = (value.repeat_interleave(n, 0) for value in (batch.obs, batch.ctx))
        then = self._x(batch.next_obs, batch.next_ctx).repeat_interleave(n, 0)
        with torch.no_grad():
            uniform = torch.rand(b * n, self.map.dim, generator=self.generator) * 2.0 - 1.0
            x = torch.cat([self._x(obs, ctx), then])
            u, log_prob = self.actor.sample(x, self._normal(len(x)))
        candidates = self.map.to_critic(torch.cat([uniform, u]), ctx.repeat(3, 1))
        q_uniform, q_actor = self.critic(self._state(obs).repeat(3, 1), candidates).split(
            [b * n, 2 * b * n], dim=1
        )
        return conservative_loss(
            q,
            q_uniform.view(-1, b, n),
            torch.cat([part.view(-1, b, n) for part in q_actor.chunk(2, dim=1)], dim=-1),
            torch.cat([part.view(b, n) for part in log_prob.chunk(2)], dim=-1),
            batch.mc_return,
            self.map.dim,
        )

    def _actor_step(self, batch: Batch) -> Info:
        x = self._x(batch.obs, batch.ctx)
        gaussian = isinstance(self.actor, GaussianActor)
        if isinstance(self.actor, GaussianActor):
            u, log_prob = self.actor.sample(x, self._normal(len(x)))
        else:
            u, log_prob = self.actor.mode(x), torch.zeros(len(x))
        heads = 1 if self.cfg.actor_reduce == "first" else None
        q = self.critic(self._state(batch.obs), self.map.to_critic(u, batch.ctx), heads)
        q = q.amin(dim=0) if self.cfg.actor_reduce == "min" else q.mean(dim=0)
        alpha = self.log_alpha.exp().detach() if gaussian else 0.0
        loss, info = sac_actor_loss(q, log_prob, alpha)
        penalty, size = residual_penalty(u, self.cfg.penalty)
        loss, info = (
            loss + penalty,
            info | size | {"actor/saturation": (u.detach().abs() > 0.95).float().mean()},
        )
        loss = loss + self._dual_step(u, batch, log_prob, info)
        self._step(self.actor_opt, self._actor_flat, loss, self.actor)
        return info

    def _dual_step(self, u: Tensor, batch: Batch, log_prob: Tensor, info: Info) -> Tensor | float:
        """Move the entropy weight and the norm multiplier; return the multiplier's term of the actor's
        loss.
        """
        if self.dual_opt is None:
            return 0.0
        term: Tensor | float = 0.0
        loss = torch.zeros(())
        if self.cfg.auto_alpha:
            loss = loss + temperature_loss(self.log_alpha, log_prob, self.cfg.target_entropy * self.map.dim)
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
        """A copy of the networks' weights and the gate's margin, for `load_weights`."""
        networks = {
            name: {key: value.clone() for key, value in getattr(self, name).state_dict().items()}
            for name in NETWORKS
        }
        doubt = torch.tensor(self.critic.doubt, dtype=torch.float64)
        return networks | {"gate": {"doubt": doubt}}

    def load_weights(self, weights: Mapping[str, Mapping[str, Tensor]] | None) -> None:
        """Back to `weights`, or, for None, to an actor that reproduces the base. Moments of the optimisers
        restart.
        """
        if weights is None:
            self.actor.restart()
            self.target_actor.restart()
        else:
            for name, state in weights.items():
                if name == "gate":
                    self.critic.doubt = float(state["doubt"])
                else:
                    getattr(self, name).load_state_dict(state)
        self.actor_opt.state.clear()
        self.critic_opt.state.clear()

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimiser moments, multipliers, update count and generator state; moments are copies."""
        return {
            **{name: getattr(self, name).state_dict() for name in NETWORKS},
            "doubt": self.critic.doubt,
            "actor_opt": copy.deepcopy(self.actor_opt.state_dict()),
            "critic_opt": copy.deepcopy(self.critic_opt.state_dict()),
            "dual_opt": copy.deepcopy(self.dual_opt.state_dict()) if self.dual_opt else {},
            "log_alpha": self.log_alpha.detach().clone(),
            "log_dual": self.log_dual.detach().clone(),
            "updates": self.updates,
            "wander": self._wander,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in (*NETWORKS, "actor_opt", "critic_opt"):
            getattr(self, name).load_state_dict(state[name])
        self.critic.doubt = float(state.get("doubt", self.cfg.gate_doubt))  # nor of before doubt fell
        if self.dual_opt is not None:
            self.dual_opt.load_state_dict(state["dual_opt"])
        with torch.no_grad():
            self.log_alpha.copy_(state["log_alpha"])
            self.log_dual.copy_(state["log_dual"])
        self.updates, self._wander = int(state["updates"]), state["wander"]
        self.generator.set_state(state["generator"])
