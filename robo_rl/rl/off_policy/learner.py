"""Off-policy learner: SAC or TD3 with an ensemble of critics over an action map.

The settings select the additions, each in a file of its own: AR(1) exploration noise (`exploration`), the
gate (`gate`), the conservative term (`conservative`), the temperature and the norm bound (`multipliers`),
noise-aliased critics (`noise_aliased`), a second actor that explores (`deep.optimistic_actor`), statistics of
observations and rewards (`deep.scaling`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from robo_rl.core.action_map import ActionMap
from robo_rl.core.shapes import Float
from robo_rl.core.views import ALL, Views
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import Actor, GaussianActor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.deep.xqc import batch_statistics
from robo_rl.nets.gradients.acting import CompiledActor, CompiledCritic, compiled_actor, compiled_critic
from robo_rl.nets.gradients.layer import Scratch
from robo_rl.nets.optim.flat import FlatAdam, flatten_parameters
from robo_rl.rl.off_policy.batch_encoder import BatchEncoder, without_encoder
from robo_rl.rl.off_policy.config import LearnerConfig, check_learner
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.critics import Critics, QCritics, copied, gaussian
from robo_rl.rl.off_policy.deep.joint_critics import JointCritics
from robo_rl.rl.off_policy.deep.optimistic_actor import OptimisticActor
from robo_rl.rl.off_policy.deep.scaling import RunningScales
from robo_rl.rl.off_policy.explicit import ExplicitActors, explicit_actors
from robo_rl.rl.off_policy.exploration import Exploration
from robo_rl.rl.off_policy.gate import gated
from robo_rl.rl.off_policy.losses import Info, floored_target, residual_penalty, sac_actor_loss
from robo_rl.rl.off_policy.multipliers import Multipliers
from robo_rl.rl.off_policy.networks import make_networks
from robo_rl.rl.off_policy.noise_aliased import Decoder, NoiseAliasedCritics
from robo_rl.rl.off_policy.targets import highest, next_action, repeated


class OffPolicyLearner:
    """Actor, critics, their target networks and optimisers, over any action map.

    All random numbers come from `generator`, so a restored learner continues bit for bit. views: which parts
    of a stored observation actor and critics see. base: the base policy of noise-aliased critics (DSRL-NA);
    None for critics of the map's action. encoder: makes features of sampled pictures and learns with the
    critics; None: batches hold features. passes: how gradients are computed on a CPU, where `explicit`
    supports the settings: in machine code, in torch, or by autograd, the reference of the tests. Raises
    ConfigError for settings that make no learner.
    """

    def __init__(
        self,
        obs_dim: int,
        action_map: ActionMap,
        cfg: LearnerConfig,
        generator: torch.Generator,
        views: Views = ALL,
        base: Decoder | None = None,
        encoder: BatchEncoder | None = None,
        passes: Literal["compiled", "torch", "autograd"] = "compiled",
    ) -> None:
        check_learner(cfg)
        self.encoder = encoder
        self.map, self.cfg, self.generator, self._obs_dim = action_map, cfg, generator, obs_dim
        self.context = context = LearnerContext(cfg, action_map, views, generator)
        self.updates = 0
        acting: Scratch | None = None  # of passes that are written out: for acting, and for updates
        scratch: Scratch | None = None
        if passes != "autograd" and cfg.network == "mlp" and context.device.type == "cpu":
            acting = scratch = Scratch(passes == "compiled")
            if cfg.precision == "bfloat16":
                scratch = Scratch(passes == "compiled", bfloat16=True)
        nets = make_networks(obs_dim, context)
        self.actor, self.target_actor = nets.actor, nets.target_actor
        self.critics: Critics
        if base is None:
            kind = JointCritics if cfg.network == "xqc" else QCritics
            self.critics = kind(nets, context, None if encoder is None else encoder.module, scratch)
        else:
            self.critics = NoiseAliasedCritics(obs_dim, nets, context, base)
        self.actor_opt = context.adam(self.actor, cfg.lr_actor)
        scaled = cfg.normalize_obs or cfg.reward_scaling != "none"
        self.scales = RunningScales(obs_dim, nets, context) if scaled else None
        self._target_actor_flat = flatten_parameters(self.target_actor)
        self.exploration = Exploration(context)
        self.optimist = OptimisticActor(obs_dim, gaussian(self.actor), context) if cfg.optimism else None
        self.multipliers = Multipliers(context)
        # Actor and critics for acting, in machine code where there is one.
        self._compiled: tuple[Actor | CompiledActor, CriticEnsemble | CompiledCritic]
        self._compiled = self.actor, self.critic
        self._explicit: ExplicitActors | None = None  # the actor's update without autograd
        if acting is not None and scratch is not None:
            actor, critic = compiled_actor(self.actor, acting), compiled_critic(self.critic, acting)
            self._compiled = actor or self.actor, critic or self.critic
            self._explicit = explicit_actors(
                nets, self.actor_opt, self.critic, self.multipliers, context, scratch
            )

    @property
    def critic(self) -> CriticEnsemble:
        """The critics that acting, gating and the actor's update use."""
        return self.critics.critic

    @property
    def gate(self) -> CriticEnsemble:
        """The critics of the deployed policy's gate."""
        return self.critics.bootstrap_gate if self.cfg.deploy_target else self.critic

    @property
    def deployed_actor(self) -> Actor:
        """The actor of the deployed policy."""
        return self.target_actor if self.cfg.deploy_target else self.actor

    # Acting

    @torch.no_grad()
    def act(
        self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"], explore: bool
    ) -> Float[Tensor, "b d"]:
        """u for these observations; with `gate`, 0 wherever the critics prefer the base.

        Exploration has no gate margin: a correction that is never tried cannot prove better than the base.
        """
        x = self.context.actor_input(obs, ctx)
        actor, critic = self._compiled
        u = self.exploration.act(self.optimist or actor, x) if explore else actor.mode(x)
        if not self.cfg.gate:
            return u
        margin = 0.0 if explore else self.gate.margin
        return gated(u, self.context.critic_input(obs), ctx, critic, self.map, margin)

    def acting_weights(self) -> dict[str, dict[str, Tensor]]:
        """A copy of the part of `weights` that exploring reads, for actors in other processes."""
        networks = self._networks()
        return {name: copied(networks[name].state_dict()) for name in self._acting_names()}

    def _acting_names(self) -> tuple[str, ...]:
        gate = ("critic",) if self.cfg.gate else ()
        return ("actor", *gate, *(() if self.optimist is None else ("optimist",)))

    # Learning

    @property
    def period(self) -> int:
        """Updates after which the pattern of `actor_delay` and `target_delay` repeats."""
        return math.lcm(self.cfg.actor_delay, self.cfg.target_delay)

    def update(self, batch: Batch) -> Info:
        """One critic update, and one actor update every `actor_delay`-th time."""
        self.updates += 1
        with self.context.products():
            return self.update_number(self.updates, batch)

    def update_number(self, number: int, batch: Batch, logs: bool = True) -> Info:
        """The update with this number, from 1. Changes tensors in place and nothing else (see `graphs`).

        logs: False: they may be left out.
        """
        batch = self._prepared(batch)
        target, info = self.target_of(batch)
        if self.cfg.return_floor:
            target, floored = floored_target(target, batch.return_floor)
            info |= floored
        info |= self.critics.fit(batch, target, logs)
        if number % self.cfg.actor_delay == 0:
            seen = without_encoder(batch)
            info |= self.update_actor(seen, logs)
            if self.optimist is not None:
                info |= self.optimist.update(seen, self.critic)
        if number % self.cfg.target_delay == 0:
            self._follow()
        return info

    def burn_in(self, batch: Batch, monte_carlo: bool) -> Info:
        """One critic update to the base's value: Monte-Carlo returns, or TD with u = 0. The actor stays."""
        batch = self._prepared(batch)
        returns = self.critics.returns_target
        target = returns(batch.mc_return) if monte_carlo else self.base_target_of(batch)
        info = self.critics.fit(batch, target)
        self._follow()
        return info

    def end_burn_in(self) -> bool:
        """The actor may act from now on. True if the guard must return to the present weights, because new
        ones are not the base.
        """
        return False

    def _prepared(self, batch: Batch) -> Batch:
        """The batch with features of its pictures and scaled rewards."""
        batch = batch if self.encoder is None else self.encoder(batch)
        return batch if self.scales is None else self.scales.scaled(batch)

    def set_rates(self, share: float) -> None:
        """Set all learning rates to this share of the first ones."""
        rates = {"critic_opt": self.cfg.lr_critic}
        for name, optimizer in self._optimizers().items():
            optimizer.set_lr(share * rates.get(name, self.cfg.lr_actor))
        if self.multipliers.optimizer is not None:
            self.multipliers.optimizer.set_lr(share * self.cfg.lr_actor)

    @property
    def reward_unit(self) -> float:
        """Reward that counts as 1 in the critics' values. Reads the device."""
        return 1.0 if self.scales is None else float(self.scales.reward_scale)

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Info:
        """Mean Q of u = 0 (the base, where there is one) and of the actor's u, in the states of a batch."""
        batch = batch if self.encoder is None else self.encoder.as_seen(batch)
        zero = batch.reward.new_zeros(len(batch.reward), self.map.dim)
        mode = self.actor.mode(self.context.actor_input(batch.obs, batch.ctx))
        state = self.context.critic_input(batch.obs)
        named = {"critic/q_base": zero, "critic/q_actor": mode}
        return {
            name: self.critic(state, self.map.to_critic(u, batch.ctx)).mean() for name, u in named.items()
        }

    @torch.no_grad()
    def target_of(self, batch: Batch) -> tuple[Tensor, Info]:
        """(TD target, logs): the next decision is the actor's, or the base's where the gate prefers it.

        Of several draws of the next decision (`target_draws`), the one of highest value.
        """
        explicit, draws, rows = self._explicit, self.cfg.target_draws, len(batch.reward)
        batch = repeated(batch, draws)
        actor, target_actor = (
            (explicit.actor, explicit.target) if explicit else (self.actor, self.target_actor)
        )
        u, bonus = next_action(batch, actor, target_actor, self.multipliers.alpha, self.context)
        backup = self.critics.gated_backup if self.cfg.gate else self.critics.backup
        target = highest(backup(batch, u, 0.0 if bonus is None else bonus), draws, rows)
        return target, {} if bonus is None else {"critic/entropy_bonus": (batch.discount * bonus).mean()}

    @torch.no_grad()
    def base_target_of(self, batch: Batch) -> Tensor:
        """TD target with the base's own next decision, u = 0."""
        zero = batch.reward.new_zeros(len(batch.reward), self.map.dim)
        return self.critics.backup(batch, zero, 0.0)

    def update_actor(self, batch: Batch, logs: bool = True) -> Info:
        """One step of the actor up the critics, less entropy, penalty and norm bound."""
        if self._explicit is not None and self.cfg.norm_bound == 0.0:
            return self._explicit.update(batch, logs)
        x, cfg = self.context.actor_input(batch.obs, batch.ctx), self.cfg
        alpha: Tensor | float = 0.0
        with batch_statistics(self.actor, keep=True):
            if isinstance(self.actor, GaussianActor):
                u, log_prob = self.actor.sample(x, self.context.normal(len(x)))
                alpha = self.multipliers.alpha.detach()
            else:
                u, log_prob = self.actor.mode(x), x.new_zeros(len(x))
        loss, info = sac_actor_loss(self._judged(batch, u), log_prob, alpha)
        penalty, size = residual_penalty(u, cfg.penalty)
        saturation = {"actor/saturation": (u.detach().abs() > 0.95).float().mean()}
        term, more = self.multipliers.step(u, batch.ctx, info["actor/entropy"])
        self.actor_opt.descend(loss + penalty + term)
        return info | size | saturation | more

    def _judged(self, batch: Batch, u: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """Q of u, reduced over heads as `actor_reduce` says."""
        heads = 1 if self.cfg.actor_reduce == "first" else None
        action = self.context.map.to_critic(u, batch.ctx)
        q = self.context.evaluate(self.critic, self.context.critic_input(batch.obs), action, heads)
        return q.amin(dim=0) if self.cfg.actor_reduce == "min" else q.mean(dim=0)

    @torch.no_grad()
    def _follow(self) -> None:
        """Move all target networks by `tau`; SAC has no target actor."""
        self.critics.follow()
        if self.cfg.actor == "deterministic":
            self._target_actor_flat.lerp_(self.actor_opt.flat, self.cfg.tau)

    def renew(self) -> None:
        """Fresh weights of all networks, optimisers and multipliers; replay and exploration noise continue.

        The resets of full parameters in BRO (Nauman et al. 2024).
        """
        fresh = make_networks(self._obs_dim, self.context)
        for name, net in {
            "actor": self.actor,
            "target_actor": self.target_actor,
            **self.critics.networks(),
        }.items():
            net.load_state_dict(getattr(fresh, name).state_dict())
        for optimizer in self._optimizers().values():
            optimizer.restart()
        self.multipliers.restart()
        if self.scales is not None:
            self.scales.publish()
        if self.optimist is not None:
            self.optimist.renew()

    # Saving

    def _networks(self) -> dict[str, nn.Module]:
        encoder = {} if self.encoder is None else {"encoder": self.encoder.module}
        optimist = {} if self.optimist is None else {"optimist": self.optimist.net}
        return {
            "actor": self.actor,
            "target_actor": self.target_actor,
            **self.critics.networks(),
            **encoder,
            **optimist,
        }

    def _optimizers(self) -> dict[str, FlatAdam]:
        optimist = {} if self.optimist is None else {"optimist_opt": self.optimist.optimizer}
        return {"actor_opt": self.actor_opt, **self.critics.optimizers(), **optimist}

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """A copy of the networks' weights and the gate's margin, for `load_weights`."""
        networks = {name: copied(net.state_dict()) for name, net in self._networks().items()}
        return networks | {"gate": {"margin": torch.tensor(self.gate.margin, dtype=torch.float64)}}

    def load_weights(self, weights: Mapping[str, Mapping[str, Tensor]] | None) -> None:
        """Restore `weights`; None: an actor that reproduces the base. Moments of the optimisers restart."""
        if weights is None:
            self.actor.restart()
            self.target_actor.restart()
        else:
            networks = self._networks()
            for name, state in weights.items():
                if name == "gate":
                    self.gate.margin = float(state["margin"])
                else:
                    networks[name].load_state_dict(state)
        for optimizer in self._optimizers().values():
            optimizer.restart()

    def state_dict(self) -> dict[str, Any]:
        """Weights, moments, multipliers, exploration noise, update count and generator state."""
        return {
            **{name: net.state_dict() for name, net in self._networks().items()},
            **{name: optimizer.state_dict() for name, optimizer in self._optimizers().items()},
            "gate_margin": self.gate.margin,
            "multipliers": self.multipliers.state_dict(),
            **({} if self.optimist is None else {"optimism": self.optimist.state_dict()}),
            **({} if self.scales is None else {"scales": self.scales.state_dict()}),
            "exploration_noise": self.exploration.noise,
            "updates": self.updates,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        for name, net in self._networks().items():
            net.load_state_dict(state[name])
        for name, optimizer in self._optimizers().items():
            optimizer.load_state_dict(state[name])
        self.gate.margin = float(state["gate_margin"])
        self.multipliers.load_state_dict(state["multipliers"])
        if self.optimist is not None:
            self.optimist.load_state_dict(state["optimism"])
        if self.scales is not None:
            self.scales.load_state_dict(state["scales"])
        self.updates = int(state["updates"])
        self.exploration.noise = state["exploration_noise"].to(self.context.device)
        self.generator.set_state(state["generator"])
