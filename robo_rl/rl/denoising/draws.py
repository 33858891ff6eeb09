"""Policy head of learning by the loss of behaviour cloning: no likelihood, and no stochastic transition.

A decision is a chunk from random initial noise, stored with n draws (noise, time) at which the loss of the
base's training is taken. Minus that loss stands for the log-probability: its differences give the ratios of
FPO++ (Yi et al. 2026, eq. 8-10), one for every draw, and its weighted mean is the regression of AWR.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.action_map import ChainMap
from robo_rl.core.shapes import Bool, Float, Int
from robo_rl.nets.guided import BAD, GOOD, NONE
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.on_policy.head import HeadTerms


@runtime_checkable
class Imitator(Protocol):
    """A policy with the loss of its training, from precomputed features, under its current weights."""

    def sample_from(self, features: Tensor, noise: Tensor) -> Float[Tensor, "b Tp a"]: ...

    def loss_from(
        self, features: Tensor, chunk: Tensor, noise: Tensor, u: Float[Tensor, " b"]
    ) -> Float[Tensor, " b"]: ...


class DrawHead:
    """Distribution of a `ChainMap`'s u with draws. A term is one draw: minus the loss at its noise and time.

    reduce: the loss of a chunk is the mean or the sum over its elements. clip: of every ratio.
    """

    def __init__(
        self, policy: Imitator, module: nn.Module, action_map: ChainMap, reduce: str, clip: float
    ) -> None:
        self.module, self.map, self.terms = module, action_map, action_map.draws
        self._policy, self.clip = policy, clip
        self._factor = float(action_map.shape[0] * action_map.shape[1]) if reduce == "sum" else 1.0

    def act(
        self,
        obs: Float[Tensor, "b f"],
        ctx: Float[Tensor, "b n"],
        generator: torch.Generator,
        *,
        explore: bool,
    ) -> Float[Tensor, "b d"]:
        """The chunk from the noise `ctx`, which alone explores, with new draws."""
        count, device, shape = len(ctx), ctx.device, (self.terms, *self.map.shape)
        chunk = self._policy.sample_from(obs, ctx.view(count, *self.map.shape))
        noise = torch.randn(count, *shape, generator=generator, device=device, dtype=ctx.dtype)
        times = torch.rand(count, self.terms, generator=generator, device=device, dtype=ctx.dtype)
        return torch.cat([noise.flatten(1), chunk.flatten(1), times], dim=1)

    def evaluate(
        self, x: Float[Tensor, "r f"], u: Float[Tensor, "r d"], term: Int[Tensor, " r"]
    ) -> HeadTerms:
        points, rows = self.map.points(u), torch.arange(len(u), device=u.device)
        time = u[rows, u.shape[1] - self.terms + term]
        loss = self._policy.loss_from(x, points[:, -1], points[rows, term], time)
        return HeadTerms(-self._factor * loss, loss.new_zeros(()), {"actor/bc_loss": loss.detach().mean()})


class GuidedDrawHead(DrawHead):
    """The head of a `GuidedNet` (RECAP, in pi*0.6): chunks are sampled with guidance, learned with labels.

    good_share: of the decisions with the highest advantage. drop: share of decisions without a label.
    """

    def __init__(
        self,
        policy: Imitator,
        module: nn.Module,
        action_map: ChainMap,
        config: DenoisingConfig,
        clip: float,
    ) -> None:
        super().__init__(policy, module, action_map, config.reduce, clip)
        self._good_share, self._drop = config.good_share, config.label_drop

    def inputs(
        self, x: Float[Tensor, "b f"], advantage: Float[Tensor, " b"], generator: torch.Generator
    ) -> Float[Tensor, "b j"]:
        drawn = torch.rand(len(x), generator=generator, device=x.device)
        label = labels_of(advantage, self._good_share, drawn < self._drop)
        return torch.cat([x, label.to(x.dtype).unsqueeze(1)], dim=1)


def labels_of(
    advantage: Float[Tensor, " b"], good_share: float, dropped: Bool[Tensor, " b"]
) -> Int[Tensor, " b"]:
    """Label of each decision: good above the (1 - good_share) quantile of the advantages, bad below; none
    where it is dropped.
    """
    good = advantage > torch.quantile(advantage, max(0.0, 1.0 - good_share))
    return torch.where(dropped, NONE, torch.where(good, GOOD, BAD))
