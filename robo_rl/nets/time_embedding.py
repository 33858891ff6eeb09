"""Sinusoidal embedding of the process time."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float


class SinusoidalTime(nn.Module):
    """t (b,) -> (b, dim), or one shared t () -> (dim,): sin, cos of scale * t * 10000^(-i / (dim/2 - 1)), i <
    dim/2.

    Times are in [0, 1]. With scale = 100, training step s of 100 has the embedding of the integer s in
    Diffusion Policy. Smaller scales suit losses with derivatives by time, which high frequencies would
    dominate.
    """

    def __init__(self, dim: int, scale: float = 100.0) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ConfigError(
                f"A time embedding has as many sines as cosines: time_dim must be even, found {dim}."
            )
        half = dim // 2
        frequency = torch.exp(torch.arange(half) * (-math.log(10_000.0) / max(half - 1, 1)))
        # computed from the configuration, so not part of a checkpoint
        self.register_buffer("frequency", frequency * scale, persistent=False)

    def forward(self, t: Float[Tensor, "*b"]) -> Float[Tensor, "*b d"]:
        angle = t.unsqueeze(-1) * self.get_buffer("frequency")
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


def per_sample(code: Float[Tensor, "*b d"], count: int) -> Float[Tensor, "b d"]:
    """The embedding as one row for each of `count` samples.

    A time shared by all samples is expanded only here, after all layers that depend on time alone: these are
    constants in an exported graph.
    """
    return code.expand(count, -1) if code.ndim == 1 else code
