"""A policy of one network call, distilled from its base while critics improve it (flow Q-learning, FQL)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from policies.base.generative import GenerativePolicy
from policies.registry import build, describe
from policies.tuned.fine_tuned import TunedPolicy
from robo_rl.core.errors import CheckpointError
from robo_rl.core.shapes import Float


class JumpHead(nn.Module):
    """chunk = clamp(noise - net(noise, t = 1, features), -1, 1): the network of a flow, as one Euler step.

    ready: the head acts; before, while it is not distilled yet, its base does.
    """

    def __init__(self, base: GenerativePolicy, ready: bool = False) -> None:
        super().__init__()
        self.net, self.ready = copy.deepcopy(base.net).requires_grad_(True), ready
        self._start = {name: value.clone() for name, value in self.net.state_dict().items()}

    def forward(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        end = torch.ones((), device=noise.device)
        chunk: Tensor = (noise - self.net(noise, end, features)).clamp(-1.0, 1.0)
        return chunk

    def restart(self) -> None:
        """Return to the base's weights, and leave acting to the base."""
        self.net.load_state_dict(self._start)
        self.ready = False


class OneStepPolicy(TunedPolicy):
    """chunk = head(features, noise), or the base's while the head is not ready: a new policy is the base, bit
    for bit.
    """

    kind = "one_step"
    base: GenerativePolicy

    def __init__(self, base: GenerativePolicy, head: JumpHead) -> None:
        super().__init__(base)
        self.head = head

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        if not self.head.ready:
            return self.base.sample_from(features, noise)
        chunk: Tensor = self.head(features, noise)
        return chunk

    def config(self) -> dict[str, Any]:
        return {"base": describe(self.base), "ready": self.head.ready}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> OneStepPolicy:
        base = build(data["base"])
        if not isinstance(base, GenerativePolicy):
            raise CheckpointError(
                f"The base of kind '{data['base'].get('kind')}' is no diffusion or flow policy."
            )
        return cls(base, JumpHead(base, bool(data["ready"])))
