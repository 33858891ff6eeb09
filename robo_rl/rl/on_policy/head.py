"""Policy heads: the distribution of u that an on-policy learner samples and whose log-probability it
recomputes.

A decision has `terms` log-probabilities, each with a ratio of its own: one for a Gaussian actor, one per
stochastic transition for a denoising chain. The learner knows no more of a policy than this. What only some
heads have is in three further protocols, and a function for each says what holds for the other heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Float, Int
from robo_rl.core.views import Views
from robo_rl.nets.actor import Actor
from robo_rl.rl.off_policy.losses import Info, residual_penalty
from robo_rl.rl.on_policy.ppo import PpoConfig, exploration_std, normal_log_prob


@dataclass(frozen=True, slots=True)
class HeadTerms:
    """r terms under the current weights."""

    log_prob: Float[Tensor, " r"]
    loss: Tensor  # regulariser of the head, added to the surrogate
    info: Info


@runtime_checkable
class PolicyHead(Protocol):
    """Distribution of u given the input x = (obs, ctx). `module` holds the trained weights."""

    module: nn.Module
    terms: int  # log-probabilities per decision
    clip: float  # of the ratios; of the last term where they differ, see `TermTrust`

    def act(
        self,
        obs: Float[Tensor, "b f"],
        ctx: Float[Tensor, "b c"],
        generator: torch.Generator,
        *,
        explore: bool,
    ) -> Float[Tensor, "b d"]: ...

    def evaluate(
        self, x: Float[Tensor, "r i"], u: Float[Tensor, "r d"], term: Int[Tensor, " r"]
    ) -> HeadTerms:
        """Log-probability of one term of each of these decisions."""
        ...


@runtime_checkable
class ConditionedHead(Protocol):
    """A head whose `evaluate` reads more than x."""

    def inputs(
        self, x: Float[Tensor, "b i"], advantage: Float[Tensor, " b"], generator: torch.Generator
    ) -> Float[Tensor, "b j"]:
        """Input of `evaluate` for the decisions of a rollout."""
        ...


@runtime_checkable
class TermTrust(Protocol):
    """A head whose terms differ in clip or weight."""

    def trust(
        self, u: Float[Tensor, "r d"], term: Int[Tensor, " r"]
    ) -> tuple[Float[Tensor, " r"], Float[Tensor, " r"]]:
        """(clip of the ratio, factor of the advantage) of these terms."""
        ...


@runtime_checkable
class ScheduledHead(Protocol):
    """A head that changes from round to round."""

    def next_round(self, share: float, generator: torch.Generator) -> Info:
        """Prepare the next rollout after a fraction `share` of training. Returns logs."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """State other than the weights of `module`."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def head_inputs(
    head: PolicyHead, x: Float[Tensor, "b i"], advantage: Float[Tensor, " b"], generator: torch.Generator
) -> Float[Tensor, "b j"]:
    """Input of `head.evaluate` for the decisions of a rollout: x, unless the head reads more."""
    return head.inputs(x, advantage, generator) if isinstance(head, ConditionedHead) else x


def head_trust(
    head: PolicyHead, u: Float[Tensor, "r d"], term: Int[Tensor, " r"]
) -> tuple[float | Float[Tensor, " r"], float | Float[Tensor, " r"]]:
    """(clip of the ratio, factor of the advantage) of these terms: the same for all, unless they differ."""
    return head.trust(u, term) if isinstance(head, TermTrust) else (head.clip, 1.0)


def next_head_round(head: PolicyHead, share: float, generator: torch.Generator) -> Info:
    """Prepare the next rollout after a fraction `share` of training. Returns logs."""
    return head.next_round(share, generator) if isinstance(head, ScheduledHead) else {}


def head_state(head: PolicyHead) -> dict[str, Any]:
    """State of a head other than the weights of `module`; empty for one that never changes."""
    return head.state_dict() if isinstance(head, ScheduledHead) else {}


class GaussianHead:
    """u ~ N(mean(x), std^2 I). std is scheduled, not learned. weight: of the penalty E||mean||^2."""

    terms = 1

    def __init__(self, actor: Actor, views: Views, ppo: PpoConfig, weight: float) -> None:
        self.module: nn.Module = actor
        self._actor, self._views, self._ppo, self._weight = actor, views, ppo, weight
        self.clip = ppo.clip
        self.std = ppo.std  # current standard deviation of u

    def act(
        self,
        obs: Float[Tensor, "b f"],
        ctx: Float[Tensor, "b c"],
        generator: torch.Generator,
        *,
        explore: bool,
    ) -> Float[Tensor, "b d"]:
        mean = self._actor.act(obs[:, self._views.actor], ctx)
        if not explore:
            return mean
        return mean + self.std * torch.randn(mean.shape, generator=generator, device=mean.device)

    def evaluate(
        self, x: Float[Tensor, "r i"], u: Float[Tensor, "r d"], term: Int[Tensor, " r"]
    ) -> HeadTerms:
        mean = self._actor.mode(x[:, self._views.actor])
        loss, info = residual_penalty(mean, self._weight)
        return HeadTerms(normal_log_prob(u, mean, self.std), loss, info)

    def next_round(self, share: float, generator: torch.Generator) -> Info:
        self.std = exploration_std(self._ppo, share)
        return {"actor/std": torch.tensor(self.std)}

    def state_dict(self) -> dict[str, Any]:
        return {"std": self.std}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.std = float(state.get("std", self._ppo.std))
