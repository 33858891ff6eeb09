"""SimbaV2: features, weights and residual sums on the unit sphere (Lee et al. 2025, 2502.15280, section 4).

    x ─► (x, 3) / |(x, 3)| ─► dense ─► scale ─► h / |h|
    h ◄─ unit(h + a * (unit(dense(relu(scale(dense(h))))) - h))  per block
    dense(scale(dense(h))) + bias

The weights of every unit of a dense layer have length 1, again after every update (`project_weights`). Scales
and a are learned for each feature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robo_rl.core.shapes import Float
from robo_rl.nets.deep.layers import orthogonal
from robo_rl.nets.deep.network import DeepNetwork, one_width

SHIFT = 3.0  # constant input beside the others, which keeps their length in the direction
EXPANSION = 4  # width of a block's inner layer, in widths of the network
EPS = 1e-8


def unit(x: Float[Tensor, "... w"]) -> Float[Tensor, "... w"]:
    """x / |x|; 0 stays 0."""
    return F.normalize(x, dim=-1, eps=EPS)


class SphereDense(nn.Module):
    """x W for each head, without a bias; the weights of every output have length 1."""

    def __init__(self, heads: int, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(orthogonal(heads, fan_in, fan_out, 1.0))
        self.project_weights()

    def forward(self, x: Float[Tensor, "k b i"]) -> Float[Tensor, "k b o"]:
        return torch.bmm(x, self.weight[: len(x)])

    @torch.no_grad()
    def project_weights(self) -> None:
        """Give the weights of every output the length 1, in place; optimisers call it after every step."""
        self.weight.div_(torch.linalg.vector_norm(self.weight, dim=1, keepdim=True).clamp_min(EPS))


class Scale(nn.Module):
    """Learned factor of each feature, `first` at the start.

    The parameter starts at `size`: all changes of the factor are first / size times as large.
    """

    def __init__(self, heads: int, width: int, first: float, size: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((heads, 1, width), size))
        self.ratio = first / size

    def forward(self, x: Float[Tensor, "k b w"]) -> Float[Tensor, "k b w"]:
        return self.factor[: len(x)] * self.ratio * x


class SphereBlock(nn.Module):
    """Step from h towards an MLP's output, back onto the sphere (LERP). share: of the way, at the start."""

    def __init__(self, heads: int, width: int, share: float) -> None:
        super().__init__()
        inner, gain = EXPANSION * width, math.sqrt(2.0 / width) / math.sqrt(EXPANSION)
        self.dense1, self.scale = SphereDense(heads, width, inner), Scale(heads, inner, gain, gain)
        self.dense2 = SphereDense(heads, inner, width)
        self.share = Scale(heads, width, share, 1.0 / math.sqrt(width))

    def forward(self, h: Float[Tensor, "k b w"]) -> Float[Tensor, "k b w"]:
        inner = torch.relu(self.scale(self.dense1(h))) + EPS  # never the zero vector
        return unit(h + self.share(unit(self.dense2(inner)) - h))


class SpherePredictor(nn.Module):
    """dense(scale(dense(h))) + bias."""

    def __init__(self, heads: int, width: int, out_dim: int) -> None:
        super().__init__()
        self.dense1, self.scale = SphereDense(heads, width, width), Scale(heads, width, 1.0, 1.0)
        self.dense2 = SphereDense(heads, width, out_dim)
        self.bias = nn.Parameter(torch.zeros(heads, 1, out_dim))

    def forward(self, h: Float[Tensor, "k b w"]) -> Float[Tensor, "k b o"]:
        out: Tensor = self.dense2(self.scale(self.dense1(h)))
        return out + self.bias[: len(h)]


class SimbaV2(DeepNetwork):
    """One block per number of `hidden`, all of this width, and a predictor for each part of the outputs."""

    def __init__(self, in_dim: int, hidden: Sequence[int], out_dim: int, heads: int, parts: int = 1) -> None:
        super().__init__()
        width = one_width("simba_v2", hidden)
        gain = math.sqrt(2.0 / width)
        self.dense, self.scale = SphereDense(heads, in_dim + 1, width), Scale(heads, width, gain, gain)
        share = 1.0 / (len(hidden) + 1)
        self.blocks = nn.ModuleList(SphereBlock(heads, width, share) for _ in hidden)
        self.predictors = nn.ModuleList(SpherePredictor(heads, width, out_dim // parts) for _ in range(parts))

    def forward(self, x: Float[Tensor, "k b i"]) -> Float[Tensor, "k b o"]:
        h = unit(F.pad(x, (0, 1), value=SHIFT))
        h = unit(self.scale(self.dense(h)))
        for block in self.blocks:
            h = block(h)
        return torch.cat([predictor(h) for predictor in self.predictors], dim=-1)

    @torch.no_grad()
    def zero_output(self) -> None:
        """Set the offsets to 0. The weights keep their length, so the outputs are small, but not 0."""
        for predictor in self.predictors:
            predictor.get_parameter("bias").zero_()

    @property
    def output_bias(self) -> Float[Tensor, "k 1 o"]:
        return self.predictors[0].get_parameter("bias")
