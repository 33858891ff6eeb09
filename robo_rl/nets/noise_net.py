"""Learned standard deviation of the transitions of a denoising chain (ReinFlow, Flow-Noise)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Float
from robo_rl.nets.mlp import mlp
from robo_rl.nets.time_embedding import SinusoidalTime

_TIME_DIM = 16


class NoiseNet(nn.Module):
    """std(x, t, cond) in [low, high], one for every element of the chunk:

        log std = log low + (log high - log low) (tanh(net) + 1) / 2

    It starts at the geometric mean of both. The network sees the condition and the time, and not the point x:
    a std that depends on x would let the noise follow the path that it disturbs.
    """

    def __init__(
        self, shape: tuple[int, int], cond_dim: int, low: float, high: float, hidden: Sequence[int]
    ) -> None:
        super().__init__()
        self.shape, self.low, self.high = shape, low, high
        self.time = SinusoidalTime(_TIME_DIM)
        self.net = mlp(_TIME_DIM + cond_dim, hidden, math.prod(shape), activation="mish", zero_last=True)

    def forward(
        self, x: Float[Tensor, "b Tp a"], t: Float[Tensor, " b"], cond: Float[Tensor, "b c"]
    ) -> Float[Tensor, "b Tp a"]:
        share = 0.5 * (torch.tanh(self.net(torch.cat([self.time(t).to(cond), cond], dim=-1))) + 1.0)
        low, high = math.log(self.low), math.log(self.high)
        return (low + (high - low) * share).exp().view(-1, *self.shape)
