"""Updates with the networks' backward pass written out (`nets.gradients`), for what nearly all methods use.

    critics: outputs ─► gradient of the loss in them ─► gradient of the weights
    actor:   u ─► critics' outputs ─► gradient in u ─► gradient of the actor's weights

The rest takes autograd: critics that train an encoder, Cal-QL's term and the norm bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.action_map import ActionMap, DirectMap, ResidualMap
from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.gradients.actors import ActorPasses, GaussianPasses, actor_passes
from robo_rl.nets.gradients.layer import Scratch
from robo_rl.nets.gradients.stack import ensemble_stack
from robo_rl.nets.optim.flat import FlatAdam
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.off_policy.multipliers import Multipliers
from robo_rl.rl.off_policy.networks import Networks


def through_map(
    action_map: ActionMap, u: Float[Tensor, "b d"], ctx: Float[Tensor, "b c"]
) -> tuple[Float[Tensor, "b k"], Callable[[Tensor], Tensor]]:
    """(critics' input for u, function from the gradient in it to the gradient in u)."""
    if isinstance(action_map, DirectMap):
        return u, lambda grad: grad
    if isinstance(action_map, ResidualMap):
        unbounded = torch.add(ctx, u, alpha=action_map.scale)
        slope = (unbounded.abs() <= 1.0) * action_map.scale
        return unbounded.clamp(-1.0, 1.0), slope.mul
    with torch.enable_grad():
        leaf = u.detach().requires_grad_()
        action = action_map.to_critic(leaf, ctx)
    return action.detach(), lambda grad: torch.autograd.grad(action, leaf, grad)[0]


class ActionGradient:
    """Gradient of Q in the action; Q is reduced over heads by min or mean, or to the first."""

    def __init__(self, critic: CriticEnsemble, reduce: str, scratch: Scratch) -> None:
        self._stack = ensemble_stack(critic, scratch, heads=1 if reduce == "first" else None)
        self._support, self._lowest = critic.support, reduce == "min"

    def __call__(self, state: Float[Tensor, "b s"], action: Float[Tensor, "b k"]) -> Float[Tensor, "b k"]:
        """Gradient of the batch's sum of Q in the actions."""
        outputs = self._stack.forward(state, action)
        grad = self._of_q(outputs) if self._support is None else self._of_logits(outputs)
        return self._stack.input_gradient(grad, state.shape[1])

    def _of_q(self, outputs: Float[Tensor, "k b 1"]) -> Float[Tensor, "k b 1"]:
        if len(outputs) == 1 or not self._lowest:
            return torch.full_like(outputs, 1.0 / len(outputs))
        chosen = torch.empty_like(outputs)
        torch.eq(outputs, outputs.amin(dim=0), out=chosen)
        return chosen.div_(chosen.sum(0))  # of equal heads, each has its share

    def _of_logits(self, outputs: Float[Tensor, "k b n"]) -> Float[Tensor, "k b n"]:
        assert self._support is not None
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            q = self._support.mean(leaf)
            total = q.amin(dim=0).sum() if self._lowest else q.mean(dim=0).sum()
        return torch.autograd.grad(total, leaf)[0]


@dataclass(frozen=True, slots=True)
class ExplicitActors:
    """An actor and its target network, with the update of the actor."""

    actor: ActorPasses
    target: ActorPasses
    action_gradient: ActionGradient
    optimizer: FlatAdam
    multipliers: Multipliers
    context: LearnerContext

    @torch.no_grad()
    def update(self, batch: Batch, logs: bool = True) -> Info:
        """One step of the actor, for a loss without norm bound. logs: those of autograd's form, or none."""
        context, cfg, rows = self.context, self.context.cfg, len(batch.reward)
        x = context.actor_input(batch.obs, batch.ctx)
        actor = self.actor
        if isinstance(actor, GaussianPasses):
            u, log_prob = actor.sample(x, context.normal(rows))
            entropy, alpha = log_prob.mean().neg(), self.multipliers.alpha
        else:
            u = actor.mode(x)
            entropy = u.new_zeros(())
        action, to_u = through_map(context.map, u, batch.ctx)
        du = to_u(self.action_gradient(context.critic_input(batch.obs), action)) * (-1.0 / rows)
        if cfg.penalty > 0.0:
            du.add_(u, alpha=2.0 * cfg.penalty / rows)
        _, info = self.multipliers.step(u, batch.ctx, entropy)
        if isinstance(actor, GaussianPasses):
            actor.backward(du, alpha / rows)
        else:
            actor.backward(du)
        self.optimizer.descend_gradient()
        return {"actor/entropy": entropy, **_size(u), **info} if logs else {}


def _size(u: Float[Tensor, "b d"]) -> Info:
    """Logs of the size of u."""
    return {
        "actor/u_rms": torch.linalg.vector_norm(u) * (1.0 / math.sqrt(u.numel())),
        "actor/saturation": (u.abs() > 0.95).mean(dtype=torch.float32),
    }


def explicit_actors(
    nets: Networks,
    optimizer: FlatAdam,
    critic: CriticEnsemble,
    multipliers: Multipliers,
    context: LearnerContext,
    scratch: Scratch,
) -> ExplicitActors | None:
    """Explicit form of actors that climb `critic`; None where their layers are not supported."""
    # Memory of its own: an actor's pass is still needed after the critics' pass.
    own = Scratch(scratch.compiled, scratch.bfloat16)
    actor, target = actor_passes(nets.actor, own, optimizer), actor_passes(nets.target_actor, own)
    if actor is None or target is None:
        return None
    action_gradient = ActionGradient(critic, context.cfg.actor_reduce, scratch)
    return ExplicitActors(actor, target, action_gradient, optimizer, multipliers, context)
