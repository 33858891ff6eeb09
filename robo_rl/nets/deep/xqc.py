"""XQC: an MLP with batch norms and weights of length 1 (Palenicek et al. 2025, 2509.25174, section 4).

    x ─► batch norm ─► (dense ─► batch norm ─► relu) per layer ─► dense + bias

The weights of every unit have length 1, again after every update. A batch norm takes running statistics,
except inside `batch_statistics`: a learner's passes take those of their own batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Float
from robo_rl.nets.deep.network import DeepNetwork
from robo_rl.nets.deep.simba_v2 import SphereDense

MOMENTUM = 0.01  # share of a batch in the running statistics
EPS = 1e-3


class HeadBatchNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * gain + shift, with statistics of every head over its rows."""

    mean: Tensor
    variance: Tensor

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(heads, 1, width))
        self.shift = nn.Parameter(torch.zeros(heads, 1, width))
        self.register_buffer("mean", torch.zeros(heads, 1, width))
        self.register_buffer("variance", torch.ones(heads, 1, width))
        self.of_batch, self.keep = False, False

    def forward(self, x: Float[Tensor, "k b w"]) -> Float[Tensor, "k b w"]:
        k = len(x)
        mean, variance = self.mean[:k], self.variance[:k]
        if self.of_batch:
            mean = x.float().mean(dim=1, keepdim=True)
            variance = x.float().var(dim=1, keepdim=True, correction=0)
            if self.keep:
                with torch.no_grad():
                    self.mean[:k].lerp_(mean, MOMENTUM)
                    self.variance[:k].lerp_(variance, MOMENTUM)
        factor = self.gain[:k] * torch.rsqrt(variance + EPS)
        return torch.addcmul(self.shift[:k], x - mean, factor)


@contextmanager
def batch_statistics(net: nn.Module, *, keep: bool) -> Iterator[None]:
    """Within, batch norms of this network take the statistics of the batch; keep: they also move the running
    ones. Nothing changes for a network without batch norms.
    """
    norms = [part for part in net.modules() if isinstance(part, HeadBatchNorm)]
    for norm in norms:
        norm.of_batch, norm.keep = True, keep
    try:
        yield
    finally:
        for norm in norms:
            norm.of_batch, norm.keep = False, False


class Xqc(DeepNetwork):
    """One layer per number of `hidden`. One layer predicts all parts."""

    def __init__(self, in_dim: int, hidden: Sequence[int], out_dim: int, heads: int, parts: int = 1) -> None:
        super().__init__()
        sizes = list(pairwise((in_dim, *hidden)))
        self.norms = nn.ModuleList(HeadBatchNorm(heads, width) for width in (in_dim, *hidden))
        self.layers = nn.ModuleList(SphereDense(heads, *size) for size in sizes)
        self.output = SphereDense(heads, sizes[-1][1], out_dim)
        self.bias = nn.Parameter(torch.zeros(heads, 1, out_dim))

    def forward(self, x: Float[Tensor, "k b i"]) -> Float[Tensor, "k b o"]:
        norms = iter(self.norms)
        h = next(norms)(x)
        for layer, norm in zip(self.layers, norms, strict=True):
            h = torch.relu(norm(layer(h)))
        out: Tensor = self.output(h)
        return out + self.bias[: len(x)]

    @torch.no_grad()
    def zero_output(self) -> None:
        """Set the offset to 0. The weights keep their length, so the outputs are not 0."""
        self.bias.zero_()

    @property
    def output_bias(self) -> Float[Tensor, "k 1 o"]:
        return self.bias
