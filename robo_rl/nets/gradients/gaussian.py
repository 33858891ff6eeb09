"""Samples of a tanh-squashed Gaussian and their gradient, written out (Haarnoja et al. 2018, appendix C).

    log s = mid + half * t,   t = tanh(raw + bias),   a = m + s eps,   u = tanh(a)
    log pi = sum of -eps^2 / 2 - log s - log sqrt(2 pi) - log(1 - u^2),
    log(1 - u^2) = 2 (log 2 - a - softplus(-2 a))

With d log(1 - u^2) / da = -2 u, the gradient of a loss L(u, log pi) is

    dL/da = dL/du (1 - u^2) + 2 u dL/dlog pi,   dL/dm = dL/da,
    dL/draw = (dL/da s eps - dL/dlog pi) half (1 - t^2)

An actor with `clip_std` has log s = raw + bias, clipped to its range. The last factor, d log s / draw, is
then 1 within the range, bounds included, and 0 outside of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from robo_rl.core.shapes import Float
from robo_rl.nets.actor import LOG_STD_MAX, GaussianActor

_CONSTANT = 0.5 * math.log(2.0 * math.pi) + 2.0 * math.log(2.0)


class DeviationRange:
    """bias, mid and half of the formulas above, for the range of an actor's log standard deviation."""

    def __init__(self, actor: GaussianActor) -> None:
        self.low, self.clipped = actor.config.log_std_min, actor.config.clip_std
        self.bias, self.half = actor.log_std_bias, 0.5 * (LOG_STD_MAX - self.low)
        # as tensors, which can be the first term of a sum
        self.half_tensor = torch.tensor(self.half)
        self.mid_tensor = torch.tensor(0.5 * (LOG_STD_MAX + self.low))

    def log_std(self, raw: Float[Tensor, "b d"]) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        """log s, and what `slope` needs: t, or raw + bias where it is clipped."""
        if self.clipped:
            shifted = raw + self.bias
            return shifted.clamp(self.low, LOG_STD_MAX), shifted
        t = torch.tanh(raw + self.bias)
        return torch.add(self.mid_tensor, t, alpha=self.half), t

    def slope(self, kept: Float[Tensor, "b d"]) -> Tensor:
        """d log s / draw, from the second result of `log_std`."""
        if self.clipped:
            return (kept >= self.low) & (kept <= LOG_STD_MAX)
        return torch.addcmul(self.half_tensor, kept, kept, value=-self.half)


@dataclass(frozen=True, slots=True)
class Draw:
    """A sample u with its log-density, and what its gradient needs: s eps, and what `slope` needs."""

    u: Float[Tensor, "b d"]
    log_prob: Float[Tensor, " b"]
    noise: Float[Tensor, "b d"]
    kept: Float[Tensor, "b d"]
    deviation: DeviationRange

    def gradient(self, du: Float[Tensor, "b d"], dlog_prob: Tensor) -> Float[Tensor, "b n"]:
        """dL/d(m, raw), n = 2d, from dL/du and dL/dlog pi, which is one number for all rows."""
        da = torch.addcmul(du, self.u, torch.addcmul(2.0 * dlog_prob, du, self.u, value=-1.0))
        draw = torch.addcmul(-dlog_prob, da, self.noise).mul_(self.deviation.slope(self.kept))
        return torch.cat([da, draw], dim=-1)


def draw(out: Float[Tensor, "b n"], deviation: DeviationRange, eps: Float[Tensor, "b d"]) -> Draw:
    """Sample from the outputs (m, raw), n = 2d, of a `GaussianActor` with this range of deviations."""
    mean, raw = out.chunk(2, dim=-1)
    log_std, kept = deviation.log_std(raw)
    noise = log_std.exp().mul_(eps)
    a = mean + noise
    half = torch.sub(a, softplus(a, beta=-2.0), alpha=2.0)  # -log(1 - u^2) / 2 + log 2
    negative = log_std.addcmul_(eps, eps, value=0.5).sub_(half, alpha=2.0)
    return Draw(torch.tanh(a), -eps.shape[1] * _CONSTANT - negative.sum(-1), noise, kept, deviation)
