"""Single-step head of a vision-language-action policy: its action expert, trained to cover the path at once.

The result is a policy of the same kind with one transition, which keeps the prefix and may be steered,
corrected and exported like any other.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from policies.base.flow import Flow, velocity_of
from policies.base.process import per_sample
from policies.vla.packed import PackedLayout
from policies.vla.policy import VlaPolicy
from robo_rl.core.shapes import Float


class SingleStepExpert(nn.Module):
    """jump(x, t) = x - t * velocity(x, t), from packed features: an Euler step from t to the action.

    The velocity is that of the policy's process; the identity at t = 0, as consistency distillation needs,
    unless the network predicts the action itself. New weights are those of the policy.
    """

    def __init__(self, policy: VlaPolicy, layout: PackedLayout) -> None:
        super().__init__()
        self.layout, self.prediction = layout, policy.shape.process.prediction
        self.net = copy.deepcopy(policy.net).requires_grad_(True)

    def jump(
        self, features: Float[Tensor, "b w"], x: Float[Tensor, "b Tp a"], t: Float[Tensor, " b"]
    ) -> Float[Tensor, "b Tp a"]:
        """Action (not clipped) directly from the point x at process time t."""
        skip, out = (per_sample(factor) for factor in velocity_of(self.prediction, t))
        velocity = skip * x + out * self.net(x, t, self.layout.unpack(features))
        moved: Tensor = x - per_sample(t) * velocity
        return moved

    def sample_from(
        self, features: Float[Tensor, "b w"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        """Chunk in [-1, 1]."""
        return self.jump(features, noise, torch.ones(noise.shape[0], device=noise.device)).clamp(-1.0, 1.0)


def with_expert(policy: VlaPolicy, expert: SingleStepExpert, execute: int) -> VlaPolicy:
    """The policy with this expert and a single transition; the prefix is shared."""
    made = copy.copy(policy)
    made._modules = dict(policy._modules)
    process = replace(policy.shape.process, steps=1)
    made.shape, made.execute = replace(policy.shape, process=process), execute
    made.net, made.process = copy.deepcopy(expert.net), Flow(process)
    return made.eval().requires_grad_(False)
