"""Critics of an off-policy learner: Q(s, a), its target network and its updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import Actor, GaussianActor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.gradients.layer import Scratch
from robo_rl.nets.gradients.stack import AnyStack, ensemble_stack
from robo_rl.nets.optim.flat import FlatAdam, flatten_parameters
from robo_rl.rl.off_policy.conservative import conservative_term
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.off_policy.networks import Networks
from robo_rl.rl.off_policy.value_loss import Bonus, make_value_loss


@runtime_checkable
class Critics(Protocol):
    """Interface of the critics to the learner. `critic` estimates Q of the map's critic action, which the
    actor maximises.
    """

    critic: CriticEnsemble
    critic_opt: FlatAdam  # of `critic`
    bootstrap_gate: CriticEnsemble  # compares candidates when a target is computed

    def fit(self, batch: Batch, target: Tensor, logs: bool = True) -> Info:
        """One update towards `target`, see `value_loss`. logs: False: they may be left out."""
        ...

    def backup(self, batch: Batch, u: Float[Tensor, "b d"], bonus: Bonus) -> Tensor:
        """Target of `fit` if u is the next decision. bonus: entropy, added to its value."""
        ...

    def gated_backup(self, batch: Batch, u: Float[Tensor, "b d"], bonus: Bonus) -> Tensor:
        """`backup` of u, or of the base's own decision (u = 0) where the gate prefers it."""
        ...

    def returns_target(self, returns: Float[Tensor, " b"]) -> Tensor:
        """Target of `fit` that states these returns; NaN where one is unknown."""
        ...

    def follow(self) -> None:
        """Move the target network by `tau`."""
        ...

    def networks(self) -> dict[str, CriticEnsemble]: ...
    def optimizers(self) -> dict[str, FlatAdam]: ...


class QCritics:
    """An ensemble Q(s, a) by temporal differences, with Cal-QL's term where `conservative` > 0.

    `critic_loss` selects the loss. encoder: makes the features of the batches; the same optimiser trains it.
    scratch: memory of passes that are written out (see `explicit`); None: autograd.
    """

    def __init__(
        self,
        nets: Networks,
        context: LearnerContext,
        encoder: nn.Module | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        cfg = context.cfg
        self.context, self.actor = context, nets.actor
        self.critic, self.target = nets.critic, nets.target
        self.bootstrap_gate = nets.target
        self.loss = make_value_loss(context)
        learning = self.critic if encoder is None else nn.ModuleList([self.critic, encoder])
        self.critic_opt = context.adam(learning, cfg.lr_critic)
        self._target_flat = flatten_parameters(self.target)
        self._target_stack = None if scratch is None else ensemble_stack(self.target, scratch)
        self._stack: AnyStack | None = None
        if scratch is not None and encoder is None and cfg.conservative == 0.0:
            self._stack = ensemble_stack(self.critic, scratch, self.critic_opt)

    def fit(self, batch: Batch, target: Tensor, logs: bool = True) -> Info:
        if self._stack is not None:
            return self._fit(self._stack, batch, target, logs)
        state = self.context.critic_input(batch.obs)
        outputs = self.context.evaluate(self.critic.outputs, state, batch.critic_action)
        loss, info = self.loss.loss(outputs, target)
        if (weight := self.context.cfg.conservative) > 0.0:
            q = self.loss.q(outputs)
            gap, more = conservative_term(batch, q, self.critic, gaussian(self.actor), self.context)
            loss, info = loss + weight * gap, info | more
        self.critic_opt.descend(self.context.head_weight * loss)
        return info

    @torch.no_grad()
    def _fit(self, stack: AnyStack, batch: Batch, target: Tensor, logs: bool) -> Info:
        """`fit` with the gradient written out."""
        outputs = stack.forward(self.context.critic_input(batch.obs), batch.critic_action)
        grad, info = self.loss.gradient(outputs, target, logs)
        if (share := self.context.head_weight) != 1.0:
            grad = grad.mul_(share)
        stack.backward(grad)
        self.critic_opt.descend_gradient()
        return info

    def backup(self, batch: Batch, u: Float[Tensor, "b d"], bonus: Bonus) -> Tensor:
        return self.bootstrap(batch, self.context.map.to_critic(u, batch.next_ctx), bonus)

    def bootstrap(self, batch: Batch, action: Float[Tensor, "b k"], bonus: Bonus) -> Tensor:
        """Target if `action`, in the form that critics see, is the next decision."""
        state = self.context.critic_input(batch.next_obs)
        return self.loss.target(batch, self._next_outputs(state, action), bonus)

    def gated_backup(self, batch: Batch, u: Float[Tensor, "b d"], bonus: Bonus) -> Tensor:
        """One pass of the target networks judges both decisions and gives the target."""
        context, state = self.context, self.context.critic_input(batch.next_obs)
        both = [context.map.to_critic(each, batch.next_ctx) for each in (u, torch.zeros_like(u))]
        outputs = self._next_outputs(state.repeat(2, 1), torch.cat(both))
        ours, base = outputs.unflatten(1, (2, -1)).unbind(1)
        q = self.loss.q(outputs).mean(dim=0).view(2, -1)
        chosen = torch.where((q[0] > q[1]).unsqueeze(-1), ours, base)
        return self.loss.target(batch, chosen, bonus)

    def _next_outputs(self, state: Float[Tensor, "b s"], action: Float[Tensor, "b k"]) -> Tensor:
        """Outputs of the target networks."""
        if self._target_stack is not None:
            return self._target_stack.forward(state, action)
        return self.context.evaluate(self.target.outputs, state, action)

    def returns_target(self, returns: Float[Tensor, " b"]) -> Tensor:
        return self.loss.returns_target(returns)

    @torch.no_grad()
    def follow(self) -> None:
        # The encoder, which has no target, comes behind the critics.
        critic = self.critic_opt.flat[: len(self._target_flat)]
        self._target_flat.lerp_(critic, self.context.cfg.tau)

    def networks(self) -> dict[str, CriticEnsemble]:
        return {"critic": self.critic, "target": self.target}

    def optimizers(self) -> dict[str, FlatAdam]:
        return {"critic_opt": self.critic_opt}


def gaussian(actor: Actor) -> GaussianActor:
    """The actor as SAC's, which `check_learner` demands where densities are used."""
    assert isinstance(actor, GaussianActor)
    return actor


def copied(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Copy of a network's state."""
    return {key: value.clone() for key, value in state.items()}
