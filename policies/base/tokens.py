"""Actions as tokens: a process that decides the numbers of a chunk one by one, each in bins of [-1, 1].

Transition k of K = Tp * a replaces element k of the noise by the centre of a bin, drawn from

    p(bin | elements before k, condition) = softmax(logits / temperature)

in the order action by action (OpenVLA, Kim et al. 2024; RT-2, Brohan et al. 2023). The other processes give a
mean and a std for a transition, this one gives logits.

Element z of the noise draws by the inverse of the distribution function: the first bin at which the sum of
probabilities reaches Phi(z). N(0, 1) draws from the distribution, z = 0 is its median, and a larger z is a
larger action, so noise of the chunk's shape serves every sampler, and can be steered. The mode would need one
number for every bin (Gumbel noise) and would not change steadily with the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.shapes import Float, Int64

LEAST_SHARE = 1e-7  # smallest Phi(z): below, float32 holds 0, and a bin without probability would be drawn


@dataclass(frozen=True)
class Tokens:
    """A process of `steps` tokens, each one of `bins` equal parts of [-1, 1]."""

    bins: int
    steps: int

    def token(self, value: Float[Tensor, "*n"]) -> Int64[Tensor, "*n"]:
        """Number of the bin that holds a value; values outside [-1, 1] are in the first or last."""
        return ((value + 1.0) * (0.5 * self.bins)).floor().clamp(0, self.bins - 1).long()

    def value(self, token: Int64[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Centre of a bin."""
        return (2.0 * token + 1.0) / self.bins - 1.0

    def draw(
        self, logits: Float[Tensor, "b v"], noise: Float[Tensor, " b"], temperature: float = 1.0
    ) -> Int64[Tensor, " b"]:
        """The first bin whose distribution function reaches Phi(noise); see the module."""
        share = (0.5 * (1.0 + torch.erf(noise / math.sqrt(2.0)))).clamp(min=LEAST_SHARE)
        reached = (logits / temperature).softmax(-1).cumsum(-1)
        wanted = share * reached[:, -1]  # the sum is 1 up to rounding
        return (reached < wanted.unsqueeze(-1)).sum(-1)
