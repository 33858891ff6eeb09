"""1-D convolutions that are fast on a CPU.

torch's CPU Conv1d is slow at the lengths of action chunks (4 to 16). At batch 1, an unfold and one matrix
product take a third of the time at lengths 4 and 8; backward passes of large batches take half. On other
devices, while a graph is captured, and for longer sequences, these layers are plain convolutions with the
same weights and values.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robo_rl.core.shapes import Float

# Output lengths up to which the matrix product was faster on an EPYC core, for few and for many chunks.
_LONGEST_FEW, _LONGEST_MANY, _FEW = 16, 8, 8


def _use_matmul(x: Tensor, out_length: int) -> bool:
    if (
        x.device.type != "cpu" or torch.compiler.is_compiling()
    ):  # first, because a captured graph must not depend on len(x)
        return False
    return out_length <= (_LONGEST_FEW if len(x) <= _FEW else _LONGEST_MANY)


def unfolded_conv1d(
    x: Float[Tensor, "b i t"],
    weight: Float[Tensor, "o i k"],
    bias: Float[Tensor, " o"],
    stride: int,
    padding: int,
) -> Float[Tensor, "b o s"]:
    """F.conv1d(x, weight, bias, stride, padding) as one matrix product, time-major inside."""
    b, _, k = x.shape[0], x.shape[1], weight.shape[-1]
    if padding:
        x = F.pad(x, (padding, padding))
    windows = x.unfold(2, k, stride)  # (b, i, s, k), a view
    s = windows.shape[2]
    columns = windows.permute(0, 2, 1, 3).reshape(b * s, -1)
    out = torch.addmm(bias, columns, weight.flatten(1).t())
    return out.view(b, s, -1).transpose(1, 2)


class Conv1d(nn.Conv1d):
    """nn.Conv1d with bias, one group, no dilation and zero padding."""

    def forward(self, x: Float[Tensor, "b i t"]) -> Float[Tensor, "b o s"]:
        k, stride, padding = self.kernel_size[0], self.stride[0], int(self.padding[0])
        if self.bias is None or not _use_matmul(x, (x.shape[-1] + 2 * padding - k) // stride + 1):
            return super().forward(x)
        return unfolded_conv1d(x, self.weight, self.bias, stride, padding)


class Upsample1d(nn.ConvTranspose1d):
    """Transposed convolution, kernel 4, stride 2, padding 1: doubles the length."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 4, stride=2, padding=1)

    def forward(
        self, x: Float[Tensor, "b c t"], output_size: list[int] | None = None
    ) -> Float[Tensor, "b c s"]:
        """Even outputs y[2s] = W1 x[s] + W3 x[s-1] and odd ones y[2s+1] = W2 x[s] + W0 x[s+1], as two matrix
        products.
        """
        if output_size is not None or self.bias is None or not _use_matmul(x, x.shape[-1]):
            return super().forward(x, output_size)
        b, _, t = x.shape
        rows = F.pad(x, (1, 1)).transpose(1, 2)  # (b, t + 2, c); row s + 1 holds x[s]
        w0, w1, w2, w3 = self.weight.unbind(-1)  # each (i, o)
        previous, here, following = rows[:, :-2], rows[:, 1:-1], rows[:, 2:]
        even = torch.cat([here, previous], dim=-1) @ torch.cat([w1, w3])
        odd = torch.cat([here, following], dim=-1) @ torch.cat([w2, w0])
        out = torch.stack([even, odd], dim=2).view(b, 2 * t, -1) + self.bias
        return out.transpose(1, 2)
