"""Sinusoidal embedding of the process time."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float


class SinusoidalTime(nn.Module):
    """t (b,) -> (b, dim), one t for all () -> (dim,): sin and cos of scale * t * 10000^(-i / (dim/2 - 1)), i
    < dim/2.

    Times run over [0, 1]. With scale = 100, the time of training step s of 100 embeds exactly as Diffusion
    Policy embeds the integer s. Smaller scales suit losses that differentiate with respect to time, which
    high frequencies would swamp.
    """

    def __init__(self, dim: int, scale: float = 100.0) -> None:
        super().__init__()
        if dim < 2 or dim % 2:
            raise ConfigError(
                f"A time embedding has as many sines as cosines: time_dim must be even, found {dim}."
            )
        half = dim // 2
        frequency = torch.exp(torch.arange(half) * (-math.log(10_000.0) / max(half - 1, 1)))
        # Derived from the configuration, so not part of a checkpoint.
        self.register_buffer("frequency", frequency * scale, persistent=False)

    def forward(self, t: Float[Tensor, "*b"]) -> Float[Tensor, "*b d"]:
        angle = t.unsqueeze(-1) * self.get_buffer("frequency")
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


def rows(code: Float[Tensor, "*b d"], count: int) -> Float[Tensor, "b d"]:
    """A row of the embedding for each of `count`. That of one time for all is repeated only here, after all
    layers that depend on time alone: in an exported graph they are constants.
    """
    return code.expand(count, -1) if code.ndim == 1 else code
