"""Flight policy: a small perceptron from the state to four commands, of motors or of thrust and body rates.

    action = tanh(W3 tanh(W2 tanh(W1 (scale x) + b1) + b2) + b3)

The last layer is initialised near zero with the bias of hovering, so learning starts from a craft that nearly
hovers. With `law` it starts as a linear control law instead, exactly, and both parts are trained:

    action = clip(W3 tanh(W2 tanh(W1 (scale x) + b1) + b2) + b3 + L (scale x) + l, -1, 1)
    W3 = b3 = 0 at the start

Initialisation with linear optimal control follows Braniff & Tian 2025, YANN-RL (arXiv 2508.16474), whose
network is piecewise affine; here a linear part and the clip are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec

STATE = "state"


class FlightPolicy(nn.Module):
    """One action at a time from the observation `state` (o,); deterministic, its noise input is ignored.

    scale: (o,) factors that bring every entry to about one. hover: the hover action, in (-1, 1), one number
    for all motors or one for each. law: add a linear part, to be set by `set_law`.
    """

    kind = "flight"
    scale: Tensor
    obs_steps = chunk = execute = 1

    def __init__(
        self,
        env: EnvSpec,
        hidden: tuple[int, ...] = (64, 64),
        scale: Tensor | None = None,
        hover: float | Sequence[float] = 0.0,
        law: bool = False,
    ) -> None:
        super().__init__()
        if set(env.obs) != {STATE} or len(env.obs[STATE].shape) != 1:
            raise ConfigError(
                f"A flight policy sees one flat observation 'state'; {env.name} offers {sorted(env.obs)}."
            )
        self.env, self.obs_spec, self.action_spec, self.hidden = env, env.obs, env.action, hidden
        width = env.obs[STATE].shape[0]
        self.register_buffer("scale", torch.ones(width) if scale is None else scale)
        sizes = (width, *hidden, env.action.dim)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        self.law = nn.Linear(width, env.action.dim) if law else None
        if self.law is None:
            nn.init.uniform_(last.weight, -0.01, 0.01)
            nn.init.zeros_(last.bias).data += torch.tensor(hover).atanh()
            return
        for part in (last.weight, last.bias, self.law.weight):
            nn.init.zeros_(part)
        nn.init.zeros_(self.law.bias).data += torch.tensor(hover)

    @torch.no_grad()
    def set_law(self, weight: Float[Tensor, "a o"], bias: Float[Tensor, " a"]) -> None:
        """Initialise as clip(weight @ observation + bias, -1, 1), with the observation in its own units."""
        if self.law is None:
            raise ConfigError("This flight policy has no linear part: make it with law=True.")
        self.law.weight.copy_(weight / self.scale)
        self.law.bias.copy_(bias)

    def columns(self, x: Float[Tensor, "o n"]) -> Float[Tensor, "a n"]:
        """Actions (a, n) of observations (o, n), the layout of the simulator, without a copy."""
        x = seen = x * self.scale.unsqueeze(1)
        *hidden, (last, shift) = self.weights()
        for weight, bias in hidden:
            x = torch.tanh(torch.addmm(bias.unsqueeze(1), weight, x))
        x = torch.addmm(shift.unsqueeze(1), last, x)
        if self.law is None:
            return torch.tanh(x)
        return (x + torch.addmm(self.law.bias.unsqueeze(1), self.law.weight, seen)).clamp(-1.0, 1.0)

    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """(weight (out, in), bias (out,)) of every layer of the perceptron, in order."""
        return [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return obs[STATE].flatten(1) * self.scale

    def sample(self, obs: Obs, noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
        return self.sample_from(self.features(obs), noise)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "#b 1 #a"]
    ) -> Float[Tensor, "b 1 a"]:
        x = features
        *hidden, (last, shift) = self.weights()
        for weight, bias in hidden:
            x = torch.tanh(torch.nn.functional.linear(x, weight, bias))
        x = torch.nn.functional.linear(x, last, shift)
        x = torch.tanh(x) if self.law is None else (x + self.law(features)).clamp(-1.0, 1.0)
        return x.unsqueeze(1) + 0.0 * noise  # the noise input stays in every policy's graph

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return action

    def config(self) -> dict[str, Any]:
        law = {} if self.law is None else {"law": True}
        return {"env": self.env.to_json(), "hidden": list(self.hidden), **law}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> FlightPolicy:
        return cls(EnvSpec.from_json(data["env"]), tuple(data["hidden"]), law=bool(data.get("law")))
