"""Flow Q-learning (FQL, Park, Li and Levine 2025, 2502.02538) on a frozen base.

A head of one network call is held near the base's chunk from the same noise, and climbs the critics. No
gradient passes through the denoising.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.action_map import ChainMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.core.views import ALL, Views
from robo_rl.data.replay import Batch
from robo_rl.rl.off_policy.config import READ_BY_CRITICS, LearnerConfig, check_read
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import Info, distilled_q_loss
from robo_rl.rl.off_policy.noise_aliased import Decoder

_READ = READ_BY_CRITICS | frozenset(
    {"target_subset", "target_reduce", "critic_loss", "atoms", "v_min", "v_max", "lr_actor", "actor_delay"}
    | {"actor_reduce", "distill"}
)
_ADVICE = {"alpha": "FQL's alpha, the weight of the distillation, is method.learner.distill."}


@runtime_checkable
class Jump(Protocol):
    """A head of one network call; also an nn.Module. ready: it acts, in place of its base."""

    ready: bool

    def __call__(self, features: Tensor, noise: Tensor) -> Tensor: ...
    def restart(self) -> None: ...


class FlowQLearner(OffPolicyLearner):
    """Critics of executed chunks, and a head that acts once it was distilled in the burn-in.

    action_map: of the chunk alone, a `ChainMap` of no transitions; its u is (chunk, 0). base: the teacher.
    """

    def __init__(
        self,
        obs_dim: int,
        action_map: ChainMap,
        cfg: LearnerConfig,
        generator: torch.Generator,
        head: nn.Module,
        base: Decoder,
        views: Views = ALL,
    ) -> None:
        if cfg.conservative > 0.0 or cfg.gate or cfg.deploy_target or cfg.target_draws > 1:
            raise ConfigError(
                "A distilled head has no density, no u = 0 and no target actor: set "
                "method.learner.conservative=0, target_draws=1, gate=false and deploy_target=false."
            )
        check_read(cfg, _READ, "The critics' single-step head", _ADVICE)
        super().__init__(obs_dim, action_map, cfg, generator, views)
        assert isinstance(head, Jump)
        self.chain, self.head, self.base = action_map, head, base
        self.actor: Any = head
        self.actor_opt = self.context.adam(head, cfg.lr_actor)

    @torch.no_grad()
    def act(
        self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b n"], explore: bool
    ) -> Float[Tensor, "b d"]:
        """u of the head's chunk from the noise `ctx`, which alone explores; the base's before it is ready."""
        noise = ctx.view(-1, *self.chain.shape)
        return self._u(self.head(obs, noise) if self.head.ready else self.base.sample_from(obs, noise))

    def _u(self, chunk: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b d"]:
        return torch.cat([chunk.flatten(1), chunk.new_zeros(len(chunk), 1)], dim=1)

    def _noise(self, count: int) -> Float[Tensor, "b Tp a"]:
        shape = (count, *self.chain.shape)
        return torch.randn(shape, generator=self.generator, device=self.context.device)

    @torch.no_grad()
    def target_of(self, batch: Batch) -> tuple[Tensor, Info]:
        """TD target: the next chunk is the head's, from new noise."""
        chunk = self.head(batch.next_obs, self._noise(len(batch.reward)))
        return self.critics.backup(batch, self._u(chunk), 0.0), {}

    @torch.no_grad()
    def base_target_of(self, batch: Batch) -> Tensor:
        """TD target with the base's own next chunk."""
        chunk = self.base.sample_from(batch.next_obs, self._noise(len(batch.reward)))
        return self.critics.backup(batch, self._u(chunk), 0.0)

    def burn_in(self, batch: Batch, monte_carlo: bool) -> Info:
        """One update of the critics to the base's value, and one of the head to the base's chunk."""
        return super().burn_in(batch, monte_carlo) | self._descend(batch, climb=False)

    def end_burn_in(self) -> bool:
        self.head.ready = True
        return True

    def update_number(self, number: int, batch: Batch, logs: bool = True) -> Info:
        self.head.ready = True
        return super().update_number(number, batch, logs)

    def update_actor(self, batch: Batch, logs: bool = True) -> Info:
        """One step of the head up the critics, held near the base."""
        return self._descend(batch, climb=True)

    def _descend(self, batch: Batch, *, climb: bool) -> Info:
        noise = self._noise(len(batch.reward))
        with torch.no_grad():
            goal = self.base.sample_from(batch.obs, noise)
        chunk = self.head(batch.obs, noise)
        q = self._judged(batch, self._u(chunk)) if climb else chunk.new_zeros(len(chunk))
        loss, info = distilled_q_loss(q, chunk, goal, self.cfg.distill if climb else 1.0)
        self.actor_opt.descend(loss)
        return info

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Info:
        """Mean Q of the base's chunk and of the head's, from the same noise."""
        state, noise = self.context.critic_input(batch.obs), self._noise(len(batch.reward))
        chunks = {
            "critic/q_base": self.base.sample_from(batch.obs, noise),
            "critic/q_actor": self.head(batch.obs, noise),
        }
        return {
            name: self.critic(state, self.map.to_critic(self._u(chunk), batch.ctx)).mean()
            for name, chunk in chunks.items()
        }

    @torch.no_grad()
    def _follow(self) -> None:
        self.critics.follow()

    def _networks(self) -> dict[str, nn.Module]:
        return {"actor": self.actor, **self.critics.networks()}

    def weights(self) -> dict[str, dict[str, Tensor]]:
        return super().weights() | self._who_acts()

    def acting_weights(self) -> dict[str, dict[str, Tensor]]:
        return super().acting_weights() | self._who_acts()

    def _who_acts(self) -> dict[str, dict[str, Tensor]]:
        return {"ready": {"ready": torch.tensor(self.head.ready)}}

    def load_weights(self, weights: Mapping[str, Mapping[str, Tensor]] | None) -> None:
        if weights is None:
            super().load_weights(None)
            return
        super().load_weights({name: state for name, state in weights.items() if name != "ready"})
        self.head.ready = bool(weights["ready"]["ready"])

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"ready": self.head.ready}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.head.ready = bool(state["ready"])
