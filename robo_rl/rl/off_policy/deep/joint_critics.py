"""Critics with batch norms: a decision and the next one pass together (CrossQ, Bhatt et al. 2024; XQC).

    (s, a), (s', a') ─► one pass of the critics         ─► outputs of (s, a) learn
                     ─► one pass of the target network  ─► outputs of (s', a') give the target

Batch norms then have the statistics of both, in the pass that gives the target and in the one that learns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.data.replay import Batch
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.deep.xqc import batch_statistics
from robo_rl.rl.off_policy.critics import QCritics
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.off_policy.value_loss import Bonus


class JointCritics(QCritics):
    """`QCritics` whose passes for learning are joint. All others take running statistics."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._next: Tensor | None = None  # next action of the last target, for the `fit` that follows

    def fit(self, batch: Batch, target: Tensor, logs: bool = True) -> Info:
        action, self._next = self._next, None
        with batch_statistics(self.critic, keep=True):
            outputs = self._joint(self.critic, batch, action)[:, : len(batch.reward)]
        loss, info = self.loss.loss(outputs, target)
        self.critic_opt.descend(self.context.head_weight * loss)
        return info

    def bootstrap(self, batch: Batch, action: Float[Tensor, "b k"], bonus: Bonus) -> Tensor:
        """Target if `action`, in the form that critics see, is the next decision."""
        self._next = action
        with batch_statistics(self.target, keep=False):
            outputs = self._joint(self.target, batch, action)[:, len(batch.reward) :]
        return self.loss.target(batch, outputs, bonus)

    def _joint(
        self, critic: CriticEnsemble, batch: Batch, action: Float[Tensor, "b k"] | None
    ) -> Float[Tensor, "heads rows n"]:
        """Outputs for the batch's decisions, and behind them for the next ones, if their action is given."""
        context = self.context
        states, actions = [batch.obs], [batch.critic_action]
        if action is not None:
            states, actions = [*states, batch.next_obs], [*actions, action]
        return context.evaluate(critic.outputs, context.critic_input(torch.cat(states)), torch.cat(actions))
