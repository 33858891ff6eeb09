"""BroNet: the residual network of BRO (Nauman et al. 2024, 2405.16158, section 3).

x ─► dense ─► norm ─► relu ─► h;   h ◄─ h + norm(dense(relu(norm(dense(h)))))  per block;   dense(h)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Float
from robo_rl.nets.deep.layers import HeadDense, HeadNorm
from robo_rl.nets.deep.network import DeepNetwork, one_width


class BroBlock(nn.Module):
    """h + norm(dense(relu(norm(dense(h))))); no activation behind the sum."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.dense1, self.norm1 = HeadDense(heads, width, width), HeadNorm(heads, width)
        self.dense2, self.norm2 = HeadDense(heads, width, width), HeadNorm(heads, width)

    def forward(self, h: Float[Tensor, "k b w"]) -> Float[Tensor, "k b w"]:
        inner = torch.relu(self.norm1(self.dense1(h)))
        out: Tensor = h + self.norm2(self.dense2(inner))
        return out


class BroNet(DeepNetwork):
    """One block per number of `hidden`, all of this width. One layer predicts all parts."""

    def __init__(self, in_dim: int, hidden: Sequence[int], out_dim: int, heads: int, parts: int = 1) -> None:
        super().__init__()
        width = one_width("bronet", hidden)
        self.dense, self.norm = HeadDense(heads, in_dim, width), HeadNorm(heads, width)
        self.blocks = nn.ModuleList(BroBlock(heads, width) for _ in hidden)
        self.output = HeadDense(heads, width, out_dim)

    def forward(self, x: Float[Tensor, "k b i"]) -> Float[Tensor, "k b o"]:
        h = torch.relu(self.norm(self.dense(x)))
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.output(h)
        return out

    @torch.no_grad()
    def zero_output(self) -> None:
        self.output.weight.zero_()
        self.output.bias.zero_()

    @property
    def output_bias(self) -> Float[Tensor, "k 1 o"]:
        return self.output.bias
