"""Random numbers as a function of (seed, counter, row), which makes an episode a pure function of its seed.

A row is one of the independent numbers that a seed and counter give. There is no generator state and no order
of drawing: thousands of lanes can be drawn at once, at any time. The hash is
SplitMix64's finaliser (Steele, Lea, Flood 2014), in torch's wrapping 64-bit integers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robo_rl.core.shapes import Float, Int64

_BELOW_ONE = 1.0 - 2.0**-24
_SEED, _COUNT, _ROW = -7046029254386353131, -4658895280553007687, -7723592293110705685  # odd, bits well mixed


def keyed_uniform(
    seed: Int64[Tensor, " n"], counter: Int64[Tensor, " n"] | int, rows: int, stream: int = 0
) -> Float[Tensor, "rows n"]:
    """Uniform numbers in the open interval (0, 1). stream: separates independent uses of one seed."""
    row = torch.arange(1, rows + 1, device=seed.device).unsqueeze(1) + (stream << 20)
    bits = _mix(
        _mix(_mix(seed * _SEED) + torch.as_tensor(counter, device=seed.device) * _COUNT).unsqueeze(0)
        + row * _ROW
    )
    # One draw in 2^24 would round up to 1, and floor(1 * points) is past the last point of a course.
    return ((((bits >> 40) & 0xFFFFFF).to(torch.float32) + 0.5) * 2.0**-24).clamp_max(_BELOW_ONE)


def keyed_normal(
    seed: Int64[Tensor, " n"], counter: Int64[Tensor, " n"] | int, rows: int, stream: int = 0
) -> Float[Tensor, "rows n"]:
    """Standard normal numbers by the Box-Muller transform. stream: as in `keyed_uniform`."""
    half = (rows + 1) // 2
    size, angle = keyed_uniform(seed, counter, 2 * half, stream).split(half)
    radius = torch.sqrt(-2.0 * size.log())
    return torch.cat([radius * (2.0 * math.pi * angle).cos(), radius * (2.0 * math.pi * angle).sin()])[:rows]


def _mix(z: Tensor) -> Tensor:
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return z ^ ((z >> 31) & 0x1FFFFFFFF)
