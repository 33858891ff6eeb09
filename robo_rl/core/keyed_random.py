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
_GOLDEN = _SEED  # 2^64 / golden ratio, the increment of SplitMix64


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


def keyed_chunks(
    seed: Int64[Tensor, " n"], counter: Int64[Tensor, " n"], shape: tuple[int, ...], stream: int = 0
) -> Float[Tensor, "n *shape"]:
    """Standard normal numbers, a block per lane, for many numbers at once: 393,216 take 2 ms of one core.

    Each lane runs SplitMix64 from its key. The upper and lower halves of its outputs give two uniform
    numbers each, from which the Box-Muller transform makes normal ones.
    """
    width = math.prod(shape)
    half = (width + 1) // 2
    key = _mix(_mix(seed * _SEED + stream) + counter * _COUNT)
    words = splitmix64(key, half).view(torch.int32).to(torch.float32)  # (n, 2 * half), in [-2^31, 2^31]
    size, angle = words[:, :half], words[:, half:] * (math.pi * 2.0**-31)
    # The smallest size bounds the normal numbers by 6; 0 would give infinity.
    radius = (size * 2.0**-32).add_(0.5).clamp_(min=2.0**-26).log_().mul_(-2.0).sqrt_()
    normal = torch.empty_like(words)
    torch.mul(radius, angle.cos(), out=normal[:, :half])
    torch.mul(radius, angle.sin_(), out=normal[:, half:])
    return normal[:, :width].reshape(-1, *shape)


def splitmix64(key: Int64[Tensor, " n"], count: int) -> Int64[Tensor, "n count"]:
    """The first `count` outputs of SplitMix64 from each key, as signed 64-bit integers."""
    return _mix(key.unsqueeze(1) + torch.arange(1, count + 1, device=key.device) * _GOLDEN)


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser. `z` is overwritten."""
    shifted = (z >> 30).bitwise_and_(0x3FFFFFFFF)
    z = z.bitwise_xor_(shifted).mul_(-4658895280553007687)
    shifted = torch.bitwise_right_shift(z, 27, out=shifted).bitwise_and_(0x1FFFFFFFFF)
    z = z.bitwise_xor_(shifted).mul_(-7723592293110705685)
    shifted = torch.bitwise_right_shift(z, 31, out=shifted).bitwise_and_(0x1FFFFFFFF)
    return z.bitwise_xor_(shifted)
