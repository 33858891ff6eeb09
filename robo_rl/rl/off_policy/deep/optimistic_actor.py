"""Optimistic exploration of BRO (Nauman et al. 2024, 2405.16158, section 3; Moskovitz et al. 2021).

    actor: N(m, s^2) ─► u in targets and deployment;   explorer: N(m + shift(x, m), (c s)^2) ─► u in training

The explorer climbs an upper bound of Q, mean + beta * disagreement of the critics, and is held near the actor
by weight * KL. beta falls and the weight rises while the KL is above `optimism_kl`, and the reverse below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import Actor, ActorConfig, GaussianActor, make_actor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.optim.adam import StaticAdam
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.off_policy.networks import drawn_seed

LOG_LOW, LOG_HIGH = -10.0, 7.5  # range of the log multipliers
FIRST_OPTIMISM, FIRST_WEIGHT = 1.0, 0.25
LR = 3e-5  # of the multipliers


class OptimisticActor:
    """Explorer around `actor`, with its optimiser and multipliers. Its shift starts at 0."""

    def __init__(self, obs_dim: int, actor: GaussianActor, context: LearnerContext) -> None:
        self.actor, self.context, self._obs_dim = actor, context, obs_dim
        self.net = self._made()
        self.optimizer = context.adam(self.net, context.cfg.lr_actor)
        # (optimism, weight of the KL), both squashed into a range
        self.raw = torch.zeros(2, device=context.device, requires_grad=True)
        self.raw_optimizer = StaticAdam([self.raw], LR, beta1=0.5)
        self._start()

    def _made(self) -> Actor:
        """A fresh network; its weights follow from the context's generator."""
        cfg, action_map = self.context.cfg, self.context.map
        seen = self.context.views.actor_width(self._obs_dim) + action_map.ctx_dim
        norm = cfg.layer_norm if cfg.actor_norm is None else cfg.actor_norm
        config = ActorConfig(
            "deterministic", seen + action_map.dim, action_map.dim, tuple(cfg.hidden), norm, squash=False,
            activation=cfg.activation, network=cfg.network,
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(drawn_seed(self.context.generator))
            return make_actor(config).to(self.context.device)

    @torch.no_grad()
    def _start(self) -> None:
        self.raw.copy_(torch.tensor([unsquashed(FIRST_OPTIMISM), unsquashed(FIRST_WEIGHT)]))

    def explore(self, x: Float[Tensor, "b i"], eps: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """u of exploration, from standard normal `eps`."""
        mean, log_std = self.actor.distribution(x)
        return self._u(mean + self._shift(x, mean), log_std, eps)

    def _shift(self, x: Float[Tensor, "b i"], mean: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        return self.net.mode(torch.cat([x, mean], dim=-1))

    def _u(
        self, mean: Float[Tensor, "b d"], log_std: Float[Tensor, "b d"], eps: Float[Tensor, "b d"]
    ) -> Float[Tensor, "b d"]:
        return torch.tanh(mean + self.context.cfg.optimism_std * log_std.exp() * eps)

    def update(self, batch: Batch, critic: CriticEnsemble) -> Info:
        """One step of the explorer and one of its multipliers."""
        context = self.context
        x = context.actor_input(batch.obs, batch.ctx)
        with torch.no_grad():
            mean, log_std = self.actor.distribution(x)
        shift = self._shift(x, mean)
        u = self._u(mean + shift, log_std, context.normal(len(x)))
        action = context.map.to_critic(u, batch.ctx)
        outputs = context.evaluate(critic.outputs, context.critic_input(batch.obs), action)
        optimism, weight = squashed(self.raw.detach())
        divergence = shift_divergence(shift, log_std).mean()
        loss = weight * divergence - upper_bound(outputs, optimism).mean()
        self.optimizer.descend(loss)
        per_dim = divergence.detach() / context.map.dim
        self._step_multipliers(per_dim)
        return {"actor/optimism": optimism, "actor/optimism_kl": per_dim}

    @torch.no_grad()
    def _step_multipliers(self, divergence: Tensor) -> None:
        """Gradients of optimism * excess and of -weight * excess, with the excess of the KL over its aim."""
        excess = divergence - self.context.cfg.optimism_kl
        slope = squashed(self.raw) * (0.5 * (LOG_HIGH - LOG_LOW)) * (1.0 - torch.tanh(self.raw).square())
        assert self.raw.grad is not None
        self.raw.grad.copy_(slope * torch.stack([excess, -excess]))
        self.raw_optimizer.step()

    def renew(self) -> None:
        """Fresh weights, multipliers and optimisers."""
        self.net.load_state_dict(self._made().state_dict())
        self._start()
        self.optimizer.restart()
        self.raw_optimizer.restart()

    def state_dict(self) -> dict[str, Any]:
        """Multipliers and their moments; the network and its optimiser are saved by the learner."""
        return {"raw": self.raw.detach().clone(), "optimizer": self.raw_optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a `state_dict`."""
        with torch.no_grad():
            self.raw.copy_(state["raw"])
        self.raw_optimizer.load_state_dict(state["optimizer"])


def upper_bound(outputs: Float[Tensor, "k b n"], optimism: Tensor | float) -> Float[Tensor, " b"]:
    """Mean of the heads plus `optimism` times their mean distance from it; with two heads (q1 + q2) / 2 +
    optimism * |q1 - q2| / 2. Taken for each quantile, then averaged.
    """
    mean = outputs.mean(dim=0)
    return (mean + optimism * (outputs - mean).abs().mean(dim=0)).mean(-1)


def shift_divergence(shift: Float[Tensor, "b d"], log_std: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
    """KL of two Gaussians of the same standard deviation whose means differ by `shift`."""
    return 0.5 * (shift * torch.exp(-log_std)).square().sum(-1)


def squashed(raw: Tensor) -> Tensor:
    """Multipliers, between e^-10 and e^7.5."""
    return torch.exp(LOG_LOW + 0.5 * (LOG_HIGH - LOG_LOW) * (1.0 + torch.tanh(raw)))


def unsquashed(value: float) -> float:
    """Number whose `squashed` is this multiplier."""
    return math.atanh(2.0 * (math.log(value) - LOG_LOW) / (LOG_HIGH - LOG_LOW) - 1.0)
