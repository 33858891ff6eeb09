"""Exponential moving average of weights, with Diffusion Policy's power schedule."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def ema_decay(step: int, power: float = 0.75, maximum: float = 0.9999) -> float:
    """1 - (1 + step)^-power, at most `maximum`: 0 at step 0, 0.999 at 10,000 steps with power 0.75."""
    return min(maximum, 1.0 - math.pow(1.0 + step, -power))


@torch.no_grad()
def ema_update(average: nn.Module, model: nn.Module, decay: float) -> None:
    """average <- decay * average + (1 - decay) * model, for every parameter that the two do not share.

    Buffers are equal in both.
    """
    pairs = zip(average.parameters(), model.parameters(), strict=True)
    own = [(slow, fast) for slow, fast in pairs if slow is not fast]
    slow: list[Tensor] = [pair[0] for pair in own]
    fast: list[Tensor] = [pair[1] for pair in own]
    torch._foreach_lerp_(slow, fast, 1.0 - decay)
