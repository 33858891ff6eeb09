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

    def explores(self, phase: Phase) -> bool:
        """True if the learner's actor acts in this phase."""
        return phase != "base" or self.warmup == "actor"

    def policy(self, phase: Phase, env_steps: int) -> Act | None:
        """Policy of a phase after this many environment steps of the run; None: the base alone."""
        if self.explores(phase):
            return lambda obs, ctx: self.explore(obs, ctx, env_steps)
        return self.warm_up()

    def warm_up(self) -> Act | None:
        """Policy of base phases without the actor; None: the base alone."""
        return self._perturb if self.warmup_noise > 0.0 else None

    def explore(
        self, obs: Float[Tensor, "b f"], ctx: Float[Tensor, "b c"], env_steps: int
    ) -> Float[Tensor, "b d"]:
        """Exploring u of the actor; during `ramp_steps` also u = 0, which leaves the step to the base."""
        u = self.learner.act(obs, ctx, explore=True)
        if env_steps >= self.ramp_steps:
            return u
        drawn = torch.rand(len(u), 1, generator=self.generator, device=u.device)
        chosen = drawn < env_steps / self.ramp_steps
        return torch.where(chosen, u, 0.0)

    def _perturb(self, obs: Tensor, ctx: Tensor) -> Tensor:
        shape = (len(obs), self.learner.map.dim)
        uniform = torch.rand(shape, generator=self.generator, device=obs.device) * 2.0 - 1.0
        return self.warmup_noise * uniform
