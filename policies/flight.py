"""A flight policy: state to four motor commands, a perceptron small enough for a microcontroller.

    action = tanh(W3 tanh(W2 tanh(W1 (scale x) + b1) + b2) + b3)

The last layer starts near zero with the bias that hovers, so learning starts from a craft that nearly floats.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import EnvSpec

STATE = "state"


class FlightPolicy(nn.Module):
    """One action at a time from the observation `state` (o,); deterministic, its noise is ignored.

    scale: (o,) factors that bring every observed quantity to about one. hover: the action that hovers, in (-1, 1).
    """

    kind = "flight"
    scale: Tensor
    obs_steps = chunk = execute = 1

    def __init__(
        self, env: EnvSpec, hidden: tuple[int, ...] = (64, 64), scale: Tensor | None = None, hover: float = 0.0
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
        nn.init.uniform_(last.weight, -0.01, 0.01)
        nn.init.constant_(last.bias, math.atanh(hover))

    def columns(self, x: Float[Tensor, "o n"]) -> Float[Tensor, "a n"]:
        """Actions (a, n) of observations (o, n): the layout of the simulator, no copy between the two."""
        x = x * self.scale.unsqueeze(1)
        for weight, bias in self.weights():
            x = torch.tanh(torch.addmm(bias.unsqueeze(1), weight, x))
        return x

    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """(weight (out, in), bias (out,)) of every layer, first to last."""
        return [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return obs[STATE].flatten(1) * self.scale

    def sample(self, obs: Obs, noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
        return self.sample_from(self.features(obs), noise)

    def sample_from(self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
        x = features
        for weight, bias in self.weights():
            x = torch.tanh(torch.nn.functional.linear(x, weight, bias))
        return x.unsqueeze(1) + 0.0 * noise  # the noise port stays in the graph of every policy

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return action

    def config(self) -> dict[str, Any]:
        return {"env": self.env.to_json(), "hidden": list(self.hidden)}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> FlightPolicy:
        return cls(EnvSpec.from_json(data["env"]), tuple(data["hidden"]))
