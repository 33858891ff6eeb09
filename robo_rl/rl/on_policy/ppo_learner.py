"""Networks and optimisers of PPO over an action map."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.action_map import ActionMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import check_settings
from robo_rl.core.shapes import Float
from robo_rl.core.views import ALL, Views
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.nets.mlp import mlp
from robo_rl.nets.optim.flat import FlatAdam
from robo_rl.rl.off_policy.config import LearnerConfig, check_learner, check_read
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.off_policy.networks import drawn_seed
from robo_rl.rl.on_policy.head import (
    GaussianHead,
    HeadTerms,
    PolicyHead,
    ScheduledHead,
    head_inputs,
    head_state,
    head_trust,
    next_head_round,
)
from robo_rl.rl.on_policy.ppo import (
    PpoConfig,
    check_objective,
    explained_variance,
    learning_rate_factor,
    standardized,
    surrogate,
    value_loss,
)
from robo_rl.rl.on_policy.rollout import RolloutTransitions, joined_rounds, vars_of

_ROWS_AT_ONCE = 16_384  # rows of one forward pass without gradients
# Settings of the learner that every head reads. `actor` changes nothing: PPO samples around a mean.
_READ = frozenset(
    {"actor", "hidden", "critic_hidden", "layer_norm", "gamma", "lr_actor", "lr_critic", "grad_clip"}
    | {"weight_decay", "adam_beta2", "timeout_is_failure"}
)
_READ_BY_GAUSSIAN = _READ | {"activation", "actor_norm", "penalty"}


class PpoLearner:
    """A policy head and a critic. The head is a Gaussian actor u ~ N(mean(s, ctx), std^2) if none is given.

    That actor's mean starts at 0, which is the base. All random numbers come from `generator`. views: parts
    of an observation that actor and critic see.
    """

    def __init__(
        self,
        obs_dim: int,
        action_map: ActionMap,
        cfg: LearnerConfig,
        ppo: PpoConfig,
        generator: torch.Generator,
        views: Views = ALL,
        head: PolicyHead | None = None,
    ) -> None:
        check_learner(cfg)
        check_settings(ppo, "ppo.")
        if cfg.gate:
            raise ConfigError("PPO has no action-value critic for a gate: set method.learner.gate=false.")
        if cfg.return_floor:
            raise ConfigError("PPO has no TD targets for a floor: set method.learner.return_floor=false.")
        read = _READ_BY_GAUSSIAN if head is None else _READ
        check_read(cfg, read, "Learning from the policy's own rollouts")
        if ppo.std <= 0.0 or ppo.gae_lambda > 1.0:
            raise ConfigError(
                f"ppo.std={ppo.std} must be positive, ppo.gae_lambda={ppo.gae_lambda} at most 1."
            )
        if ppo.normalize_reward and ppo.clip_reward <= 0.0:
            raise ConfigError(
                "ppo.clip_reward=0 makes every reward 0: give a bound above 0, or normalize_reward=false."
            )
        check_objective(ppo)
        self.map, self.cfg, self.ppo, self.generator, self.views = action_map, cfg, ppo, generator, views
        self._kept: list[RolloutTransitions] = []  # earlier rounds, the oldest first
        self.updates = self.rounds = 0
        if action_map.ctx_dim and views != ALL:
            raise ConfigError("Separate views of actor and critic need an action map without context.")
        hidden = tuple(cfg.critic_hidden or cfg.hidden)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(drawn_seed(generator))
            self.head = self._gaussian(obs_dim) if head is None else head
            state_dim = views.critic_width(obs_dim) + action_map.ctx_dim
            self.critic = mlp(state_dim, hidden, 1, layer_norm=cfg.layer_norm).to(generator.device)
        self.actor: Any = self.head.module
        nn.init.constant_(self.critic[-1].get_parameter("bias"), ppo.value_bias)
        steps = cfg.grad_clip, cfg.weight_decay, cfg.adam_beta2
        self.actor_opt = FlatAdam(self.actor, cfg.lr_actor, *steps)
        self.critic_opt = FlatAdam(self.critic, cfg.lr_critic, *steps)

    def _gaussian(self, obs_dim: int) -> GaussianHead:
        cfg, in_dim = self.cfg, self.views.actor_width(obs_dim) + self.map.ctx_dim
        norm = cfg.layer_norm if cfg.actor_norm is None else cfg.actor_norm
        actor = ActorConfig("deterministic", in_dim, self.map.dim, tuple(cfg.hidden), norm)
        actor = replace(actor, squash=self.ppo.squash, activation=cfg.activation)
        made = make_actor(actor).to(self.generator.device)
        return GaussianHead(made, self.views, self.ppo, cfg.penalty)

    @torch.no_grad()
    def act(
        self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"], explore: bool
    ) -> Float[Tensor, "b d"]:
        return self.head.act(obs, ctx, self.generator, explore=explore)

    @torch.no_grad()
    def value(self, obs: Float[Tensor, "... f"], ctx: Float[Tensor, "... c"]) -> Float[Tensor, "..."]:
        """V of the current policy."""
        return self._value(torch.cat([obs, ctx], dim=-1))

    def _value(self, x: Float[Tensor, "... i"]) -> Float[Tensor, "..."]:
        value: Tensor = self.critic(x[..., self.views.critic])
        return value.squeeze(-1)

    def log_prob(self, x: Float[Tensor, "b i"], u: Float[Tensor, "b d"]) -> Float[Tensor, " r"]:
        """log pi of every term of these decisions, decision after decision."""
        rows = torch.arange(len(x) * self.head.terms, device=x.device)
        parts = [self._evaluate(x, u, part).log_prob for part in rows.split(_ROWS_AT_ONCE)]
        return torch.cat(parts)

    def _evaluate(self, x: Tensor, u: Tensor, rows: Tensor) -> HeadTerms:
        """Terms of these rows. Row r is term r % terms of decision r // terms."""
        decision, term = rows // self.head.terms, rows % self.head.terms
        return self.head.evaluate(x[decision], u[decision], term)

    def update(self, data: RolloutTransitions, total_rounds: int) -> Info:
        """Logs of the last minibatch of one round: at most `epochs` passes over a rollout of the current
        policy. actor/first_ratio_error is of the first minibatch: above rounding, acting and learning
        disagree about the policy.
        """
        factor = learning_rate_factor(self.rounds, total_rounds, self.ppo.warmup)
        for optimizer, rate in ((self.actor_opt, self.cfg.lr_actor), (self.critic_opt, self.cfg.lr_critic)):
            optimizer.set_lr(rate * factor)
        data = self._with_kept(data)
        x = torch.cat([data.obs, data.ctx], dim=-1)
        seen = head_inputs(self.head, x, data.advantage, self.generator)
        with torch.no_grad():
            old = self.log_prob(seen, data.u)
        info: Info = {}
        first: Info = {}
        for epoch in range(self.ppo.epochs if len(data.u) else 0):
            for rows in self._minibatches(len(old)):
                info = self._step(x, seen, data, old, rows)
                self.updates += 1
                if not first and "actor/ratio_error" in info:
                    first = {"actor/first_ratio_error": info["actor/ratio_error"]}
            info["train/epochs"] = torch.tensor(epoch + 1.0)
            if "actor/kl" in info and float(info["actor/kl"]) > self.ppo.target_kl:
                break
        if data.returns is not None and len(old):
            info["critic/explained"] = explained_variance(data.advantage, data.returns)
        self.rounds += 1
        return info | first | next_head_round(self.head, self.rounds / max(1, total_rounds), self.generator)

    def _with_kept(self, data: RolloutTransitions) -> RolloutTransitions:
        """The decisions of this round, after those of the rounds before it that are kept."""
        if self.ppo.kept_rounds == 1:
            return data
        self._kept = [*self._kept, data][-self.ppo.kept_rounds :]
        return joined_rounds(self._kept)

    def _minibatches(self, size: int) -> tuple[Tensor, ...]:
        """Rows of the minibatches, in random order; a single one is the entire rollout in its own order."""
        device = self.generator.device
        if self.ppo.minibatches == 1:
            return (torch.arange(size, device=device),)
        order = torch.randperm(size, generator=self.generator, device=device)
        return order.tensor_split(min(size, self.ppo.minibatches))

    def _step(self, x: Tensor, seen: Tensor, data: RolloutTransitions, old: Tensor, rows: Tensor) -> Info:
        decision = rows // self.head.terms
        info: Info = {}
        grouped = data.returns is None
        if grouped or self.rounds >= self.ppo.critic_warmup:
            now = self._evaluate(seen, data.u, rows)
            clip, factor = head_trust(self.head, data.u[decision], rows % self.head.terms)
            advantage = data.advantage[decision]
            advantage = (advantage if grouped else standardized(advantage)) * factor
            loss, info = surrogate(self.ppo, now.log_prob, old[rows], advantage, clip)
            self.actor_opt.descend(loss + now.loss)
            info |= now.info
        if data.returns is None:
            return info
        loss, more = value_loss(self._value(x[decision]), data.returns[decision])
        self.critic_opt.descend(loss)
        return info | more

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """Copy of the actor's and the critic's weights, for `load_weights`."""
        return {
            name: {key: value.clone() for key, value in getattr(self, name).state_dict().items()}
            for name in ("actor", "critic")
        }

    def load_weights(self, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore `weights`. Moments of the optimisers restart."""
        for name, state in weights.items():
            getattr(self, name).load_state_dict(state)
        self.actor_opt.restart()
        self.critic_opt.restart()

    def state_dict(self) -> dict[str, Any]:
        """Copy of weights, moments, counters and generator state."""
        names = ("actor", "critic", "actor_opt", "critic_opt")
        state = {name: copy.deepcopy(getattr(self, name).state_dict()) for name in names}
        return state | {
            "counters": [self.updates, self.rounds],
            "head": head_state(self.head),
            "kept": [vars_of(data) for data in self._kept],
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("actor", "critic", "actor_opt", "critic_opt"):
            getattr(self, name).load_state_dict(state[name])
        self.updates, self.rounds = (int(count) for count in state["counters"])
        if isinstance(self.head, ScheduledHead):
            self.head.load_state_dict(state.get("head", state))  # older checkpoints hold the Gaussian's std
        self._kept = [RolloutTransitions(**data) for data in state.get("kept", [])]
        self.generator.set_state(state["generator"])
