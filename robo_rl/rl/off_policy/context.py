"""Shared parts of one off-policy learner: settings, action map, observation views and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.action_map import ActionMap
from robo_rl.core.shapes import Float
from robo_rl.core.views import Views
from robo_rl.nets.optim.flat import FlatAdam
from robo_rl.rl.off_policy.config import LearnerConfig

_EVERY = slice(None)


@dataclass(frozen=True, slots=True)
class LearnerContext:
    """Shared parts of actor, critics and exploration of one learner. All noise comes from `generator`."""

    cfg: LearnerConfig
    map: ActionMap
    views: Views
    generator: torch.Generator

    @property
    def device(self) -> torch.device:
        """Device of networks, batches and random numbers: the generator's."""
        return self.generator.device

    @property
    def head_weight(self) -> float:
        """Weight of each critic in the critics' loss, by `critic_reduce`."""
        return 1.0 if self.cfg.critic_reduce == "sum" else 1.0 / self.cfg.heads

    @contextmanager
    def products(self) -> Iterator[None]:
        """On a CPU, compute the matrix products within in `precision`: with bfloat16, inputs are rounded to
        it and sums are float32, where the processor has instructions for it.
        """
        if self.cfg.precision == "float32" or self.device.type != "cpu":
            yield
            return
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def evaluate(self, critic: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """Output of critics as float32. On a GPU, matrix products are computed in `precision`."""
        if self.cfg.precision == "float32" or self.device.type == "cpu":
            return critic(*inputs)
        with torch.autocast(self.device.type, torch.bfloat16):
            return critic(*inputs).float()

    def adam(self, module: nn.Module, lr: float) -> FlatAdam:
        """Optimiser of one network."""
        cfg = self.cfg
        return FlatAdam(module, lr, cfg.grad_clip, cfg.weight_decay, cfg.adam_beta2)

    def actor_input(self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"]) -> Float[Tensor, "b i"]:
        """Input of the actor: its view of the observation, and the map's context."""
        seen = _columns(obs, self.views.actor)
        return torch.cat([seen, ctx], dim=-1) if ctx.shape[1] else seen

    def critic_input(self, obs: Float[Tensor, "b f"]) -> Float[Tensor, "b s"]:
        """Input of the critics beside the action."""
        return _columns(obs, self.views.critic)

    def normal(self, count: int) -> Float[Tensor, "b d"]:
        """Standard normal noise for `count` actions u."""
        return torch.randn(count, self.map.dim, generator=self.generator, device=self.device)

    def uniform(self, count: int) -> Float[Tensor, "b d"]:
        """`count` actions u, uniform in [-1, 1]."""
        drawn = torch.rand(count, self.map.dim, generator=self.generator, device=self.device)
        return drawn * 2.0 - 1.0


def _columns(obs: Float[Tensor, "b f"], view: slice) -> Float[Tensor, "b i"]:
    return obs if view == _EVERY else obs[:, view]
