"""Layers of several heads in one batched product: dense layers and layer norms with weights for each head."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robo_rl.core.shapes import Float

EPS = 1e-6  # of layer norms, as in flax, with which the published networks were trained


class HeadDense(nn.Module):
    """x W + b for each head. W is orthogonal times `gain` at the start, b is 0."""

    def __init__(self, heads: int, fan_in: int, fan_out: int, gain: float = math.sqrt(2.0)) -> None:
        super().__init__()
        self.weight = nn.Parameter(orthogonal(heads, fan_in, fan_out, gain))
        self.bias = nn.Parameter(torch.zeros(heads, 1, fan_out))

    def forward(self, x: Float[Tensor, "k b i"]) -> Float[Tensor, "k b o"]:
        k = len(x)
        return torch.baddbmm(self.bias[:k], x, self.weight[:k])


class HeadNorm(nn.Module):
    """LayerNorm with gain and shift for each head."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(heads, 1, width))
        self.shift = nn.Parameter(torch.zeros(heads, 1, width))

    def forward(self, x: Float[Tensor, "k b w"]) -> Float[Tensor, "k b w"]:
        k = len(x)
        return torch.addcmul(self.shift[:k], F.layer_norm(x, x.shape[-1:], eps=EPS), self.gain[:k])


def orthogonal(heads: int, fan_in: int, fan_out: int, gain: float) -> Float[Tensor, "k i o"]:
    """Random matrices whose rows or columns, the fewer of both, are orthogonal and of length `gain`."""
    return torch.stack([nn.init.orthogonal_(torch.empty(fan_in, fan_out), gain) for _ in range(heads)])
