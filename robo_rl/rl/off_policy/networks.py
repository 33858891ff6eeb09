"""Networks of an off-policy learner, built from its settings."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from robo_rl.nets.actor import Actor, ActorConfig, make_actor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.rl.off_policy.config import lowest_log_std, support_of
from robo_rl.rl.off_policy.context import LearnerContext


@dataclass(frozen=True, slots=True)
class Networks:
    """Actor and critics with their target networks, which start as copies."""

    actor: Actor
    target_actor: Actor
    critic: CriticEnsemble
    target: CriticEnsemble


def make_networks(obs_dim: int, context: LearnerContext) -> Networks:
    """Fresh networks; their weights follow from the context's generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(drawn_seed(context.generator))
        actor, target_actor = (_actor(obs_dim, context).to(context.device) for _ in range(2))
        critic, target = (_critic(obs_dim, context).to(context.device) for _ in range(2))
    target.load_state_dict(critic.state_dict())
    target_actor.load_state_dict(actor.state_dict())
    return Networks(actor, target_actor, critic, target)


def drawn_seed(generator: torch.Generator) -> int:
    """Seed for the initial weights, which are made on the host."""
    return int(torch.randint(2**31 - 1, (1,), generator=generator, device=generator.device))


def make_action_critics(in_dim: int, context: LearnerContext) -> tuple[CriticEnsemble, CriticEnsemble]:
    """(critic, target) of features and executed actions, `in_dim` wide together."""
    cfg = context.cfg
    hidden = cfg.critic_hidden or cfg.hidden
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(drawn_seed(context.generator))
        critic, target = (
            CriticEnsemble(in_dim, hidden, cfg.heads, cfg.layer_norm).to(context.device) for _ in range(2)
        )
    target.load_state_dict(critic.state_dict())
    return critic, target


def _actor(obs_dim: int, context: LearnerContext) -> Actor:
    cfg = context.cfg
    norm = cfg.layer_norm if cfg.actor_norm is None else cfg.actor_norm
    in_dim = context.views.actor_width(obs_dim) + context.map.ctx_dim
    return make_actor(
        ActorConfig(
            cfg.actor, in_dim, context.map.dim, tuple(cfg.hidden), norm, cfg.init_std,
            activation=cfg.activation, network=cfg.network, normalize=cfg.normalize_obs,
            log_std_min=lowest_log_std(cfg),
            clip_std=cfg.clip_std,
        )
    )  # fmt: skip


def _critic(obs_dim: int, context: LearnerContext) -> CriticEnsemble:
    cfg = context.cfg
    in_dim = context.views.critic_width(obs_dim) + context.map.critic_dim
    return CriticEnsemble(
        in_dim, cfg.critic_hidden or cfg.hidden, cfg.heads, cfg.layer_norm, margin=cfg.gate_margin,
        support=support_of(cfg), network=cfg.network, normalize=cfg.normalize_obs,
    )  # fmt: skip
