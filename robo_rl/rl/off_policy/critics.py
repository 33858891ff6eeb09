"""Critics of an off-policy learner: Q(s, a), its target network and its updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import Actor, GaussianActor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.flat import FlatAdam, flatten_parameters
from robo_rl.rl.off_policy.conservative import conservative_term
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.losses import Info, critic_loss
from robo_rl.rl.off_policy.networks import Networks
from robo_rl.rl.off_policy.targets import subset_min


@runtime_checkable
class Critics(Protocol):
    """Interface of the critics to the learner. `critic` estimates Q of the map's critic action, which the
    actor maximises.
    """

    critic: CriticEnsemble
    critic_opt: FlatAdam  # of `critic`
    bootstrap_gate: CriticEnsemble  # compares candidates when a target is computed

    def fit(self, batch: Batch, target: Float[Tensor, " b"]) -> Info:
        """One update towards `target`."""
        ...

    def next_value(self, batch: Batch, u: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        """Value of u as the next decision."""
        ...

    def follow(self) -> None:
        """Move the target network by `tau`."""
        ...

    def networks(self) -> dict[str, CriticEnsemble]: ...
    def optimizers(self) -> dict[str, FlatAdam]: ...


class QCritics:
    """An ensemble Q(s, a) by temporal differences, with Cal-QL's term where `conservative` > 0."""

    def __init__(self, nets: Networks, context: LearnerContext) -> None:
        cfg = context.cfg
        self.context, self.actor = context, nets.actor
        self.critic, self.target = nets.critic, nets.target
        self.bootstrap_gate = nets.target
        self.critic_opt = FlatAdam(self.critic, cfg.lr_critic, cfg.grad_clip)
        self._target_flat = flatten_parameters(self.target)

    def fit(self, batch: Batch, target: Float[Tensor, " b"]) -> Info:
        q = self.critic(self.context.critic_input(batch.obs), batch.critic_action)
        loss, info = critic_loss(q, target)
        if (weight := self.context.cfg.conservative) > 0.0:
            gap, more = conservative_term(batch, q, self.critic, gaussian(self.actor), self.context)
            loss, info = loss + weight * gap, info | more
        self.critic_opt.step(loss)
        return info

    def next_value(self, batch: Batch, u: Float[Tensor, "b d"]) -> Float[Tensor, " b"]:
        context = self.context
        action = context.map.to_critic(u, batch.next_ctx)
        q = self.target(context.critic_input(batch.next_obs), action)
        return subset_min(q, context.cfg.target_subset, context.generator)

    @torch.no_grad()
    def follow(self) -> None:
        self._target_flat.lerp_(self.critic_opt.flat, self.context.cfg.tau)

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
