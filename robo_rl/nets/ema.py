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
    """average <- decay * average + (1 - decay) * model, for every parameter. Buffers are equal in both."""
    slow: list[Tensor] = list(average.parameters())
    fast: list[Tensor] = list(model.parameters())
    torch._foreach_lerp_(slow, fast, 1.0 - decay)
