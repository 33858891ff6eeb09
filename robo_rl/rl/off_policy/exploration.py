"""Exploration: AR(1) noise over time, and noise scales that differ between lanes.

`explore_correlation` is the correlation of the noise between steps: a robot's inertia filters white noise,
but not slow noise. `explore_min_scale` spreads TD3's noise scale over lanes (mixed noise, as in FastTD3, Seo
et al. 2025). Lanes with little noise reach successes, lanes with much noise explore. If all lanes explore,
few succeed, and n-step returns are low everywhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.nets.actor import Actor, GaussianActor
from robo_rl.nets.gradients.acting import CompiledActor, CompiledGaussian
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.deep.optimistic_actor import OptimisticActor


class Exploration:
    """Exploring actions of all lanes. The noise of every lane is a first-order autoregression, AR(1)."""

    def __init__(self, context: LearnerContext) -> None:
        self.context = context
        # AR(1) noise of every lane at the last step
        self.noise = torch.zeros(0, context.map.dim, device=context.device)

    def act(
        self, actor: Actor | CompiledActor | OptimisticActor, x: Float[Tensor, "b i"]
    ) -> Float[Tensor, "b d"]:
        """u of every lane: a sample of SAC's actor or of the explorer, or TD3's action with noise added."""
        if isinstance(actor, OptimisticActor):
            return actor.explore(x, self._next_noise(len(x)))
        if isinstance(actor, GaussianActor | CompiledGaussian):
            return actor.sample(x, self._next_noise(len(x)))[0]
        cfg = self.context.cfg
        scale = lane_scales(len(x), cfg.explore_std, cfg.explore_min_scale, x.device)
        return (actor.mode(x) + scale * self._next_noise(len(x))).clamp(-1.0, 1.0)

    def _next_noise(self, lanes: int) -> Float[Tensor, "b d"]:
        """rho * last + sqrt(1 - rho^2) * fresh, of unit variance."""
        fresh, rho = self.context.normal(lanes), self.context.cfg.explore_correlation
        if rho == 0.0:
            return fresh
        if len(self.noise) != lanes:
            self.noise = fresh
        else:
            self.noise = rho * self.noise + math.sqrt(1.0 - rho * rho) * fresh
        return self.noise


def lane_scales(
    lanes: int, std: float, least: float, device: torch.device | None = None
) -> Float[Tensor, "b 1"]:
    """Standard deviation of every lane's noise, evenly spaced from least * std to std; a single lane has
    std.
    """
    if lanes == 1:
        return torch.full((1, 1), std, device=device)
    return std * torch.linspace(least, 1.0, lanes, device=device).unsqueeze(-1)


def independent_sample(
    actor: Actor, x: Float[Tensor, "b i"], context: LearnerContext
) -> Float[Tensor, "b d"]:
    """Exploring u for the decisions of a batch, which have no lane: white noise of full scale."""
    if isinstance(actor, GaussianActor):
        return actor.sample(x, context.normal(len(x)))[0]
    return (actor.mode(x) + context.cfg.explore_std * context.normal(len(x))).clamp(-1.0, 1.0)
