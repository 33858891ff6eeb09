"""Policy that acts in each phase of off-policy fine-tuning."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.rl.collect import Act, Phase
from robo_rl.rl.off_policy.learner import OffPolicyLearner


class ActingPolicy:
    """Chooses u in the base phase and online. The settings are those of `FinetuneConfig`.

    The learner's exploration noise comes from its own generator, all else from `generator`.
    """

    def __init__(
        self,
        learner: OffPolicyLearner,
        generator: torch.Generator,
        *,
        warmup: str,
        warmup_noise: float,
        ramp_steps: int,
    ) -> None:
        self.learner, self.generator = learner, generator
        self.warmup, self.warmup_noise, self.ramp_steps = warmup, warmup_noise, ramp_steps

    def policy(self, phase: Phase, env_steps: int) -> Act | None:
        """Policy of a phase after this many environment steps of the run; None: the base alone."""
        if phase != "base" or self.warmup == "actor":
            return lambda obs, ctx: self.explore(obs, ctx, env_steps)
        if self.warmup_noise > 0.0:
            return lambda obs, ctx: self.perturb(obs, env_steps)
        return None

    def explore(
        self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"], env_steps: int
    ) -> Float[Tensor, "b d"]:
        """Exploring u of the actor; during `ramp_steps` also u = 0, which leaves the step to the base."""
        return self._ramped(self.learner.act(obs, ctx, explore=True), env_steps)

    def perturb(self, obs: Float[Tensor, "b f"], env_steps: int) -> Float[Tensor, "b d"]:
        """Uniform noise of half-width `warmup_noise`; during `ramp_steps` also u = 0."""
        shape = (len(obs), self.learner.map.dim)
        uniform = torch.rand(shape, generator=self.generator, device=obs.device) * 2.0 - 1.0
        return self._ramped(self.warmup_noise * uniform, env_steps)

    def _ramped(self, u: Float[Tensor, "b d"], env_steps: int) -> Float[Tensor, "b d"]:
        """u with probability env_steps / ramp_steps in each row, else 0."""
        if env_steps >= self.ramp_steps:
            return u
        drawn = torch.rand(len(u), 1, generator=self.generator, device=u.device)
        chosen = drawn < env_steps / self.ramp_steps
        return torch.where(chosen, u, 0.0)
