"""Policy for one drone of a swarm: four motor commands from its own state, its nearest neighbours and
cylinders.

    e = tanh(W_s s)                               own state and goal
    (k_i, v_i) = tanh(W_x x_i + W_c e)            each neighbour or cylinder, conditioned on the own state
    a = sum_i softmax_i(W_q e . k_i) v_i          per head; a head may also attend to nothing
    action = tanh(W_2 tanh(W_1 (e, a)))

Multi-head attention over neighbours and obstacles as in Huang et al. 2023 (arXiv 2309.13285). Objects of one
kind share weights and are summed, so their order has no effect. The cost does not grow with the swarm: a
drone observes its k nearest neighbours.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec

STATE = "state"
Kinds = tuple[tuple[int, int], ...]  # (number of objects, rows per object), in the order of the observation


class SwarmPolicy(nn.Module):
    """One action at a time from the observation `state` (o,): own rows, then the rows of every observed
    object.

    kinds: kinds of objects, each stored row after row of all its objects. The last row is nearness; 0 means
    absent. scale: (own rows,) factors that bring the own state to about one. hover: the hover action.
    """

    kind = "swarm"
    scale: Tensor
    obs_steps = chunk = execute = 1

    def __init__(
        self, env: EnvSpec, kinds: Kinds, width: int = 64, token: int = 16, heads: int = 4,
        scale: Tensor | None = None, hover: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if set(env.obs) != {STATE} or len(env.obs[STATE].shape) != 1:
            raise ConfigError(
                f"A swarm policy sees one flat observation 'state'; {env.name} offers {sorted(env.obs)}."
            )
        if token % heads:
            raise ConfigError(
                f"token = {token} cannot be split among {heads} heads. Take a multiple of heads."
            )
        self.env, self.obs_spec, self.action_spec = env, env.obs, env.action
        self.kinds, self.width, self.token, self.heads = tuple(kinds), width, token, heads
        self.own_size = env.obs[STATE].shape[0] - sum(count * rows for count, rows in kinds)
        if self.own_size < 1:
            raise ConfigError(f"An observation of {env.obs[STATE].shape[0]} rows has no room for {kinds}.")
        self.register_buffer("scale", torch.ones(self.own_size) if scale is None else scale)
        self.own = nn.Linear(self.own_size, width)
        self.things = nn.ModuleList(nn.Linear(rows, 2 * token, bias=False) for _, rows in kinds)
        self.contexts = nn.ModuleList(nn.Linear(width, 2 * token) for _ in kinds)
        self.query = nn.Linear(width, token)
        self.hidden = nn.Linear(width + token, width)
        self.last = nn.Linear(width, env.action.dim)
        nn.init.uniform_(self.last.weight, -0.01, 0.01)
        nn.init.constant_(self.last.bias, math.atanh(hover))

    def columns(self, x: Float[Tensor, "o n"]) -> Float[Tensor, "a n"]:
        """Actions (a, n) of observations (o, n), the layout of the simulator."""
        own = torch.tanh(_apply(self.own, x[: self.own_size] * self.scale.unsqueeze(1)))
        attended = self._attend(x, own)
        hidden = torch.tanh(_apply(self.hidden, torch.cat([own, attended])))
        return torch.tanh(_apply(self.last, hidden))

    def _attend(self, x: Tensor, own: Tensor) -> Float[Tensor, "t n"]:
        """Attention output of the heads over the observed objects."""
        num, split = x.shape[1], self.token // self.heads
        tokens, masks, at = [], [], self.own_size
        for (count, rows), thing, context in zip(self.kinds, self.things, self.contexts, strict=True):
            part = x[at : at + count * rows]
            at += count * rows
            seen = _apply(thing, part.reshape(rows, count * num)).view(2 * self.token, count, num)
            tokens.append(seen + _apply(context, own).unsqueeze(1))
            masks.append(part[-count:] <= 0.0)
        key, value = torch.tanh(torch.cat(tokens, dim=1)).view(2, self.heads, split, -1, num)
        query = _apply(self.query, own).view(self.heads, split, 1, num)
        logits = (query * key).sum(1).masked_fill(torch.cat(masks), -1e9)  # (heads, objects, n)
        share = torch.softmax(torch.cat([logits, torch.zeros_like(logits[:, :1])], dim=1), dim=1)[:, :-1]
        taken: Tensor = (share.unsqueeze(1) * value).sum(2)
        return taken.reshape(self.token, num)

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return obs[STATE].flatten(1)

    def sample(self, obs: Obs, noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
        return self.sample_from(self.features(obs), noise)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b 1 a"]
    ) -> Float[Tensor, "b 1 a"]:
        return self.columns(features.T).T.unsqueeze(1) + 0.0 * noise  # the noise input stays in the graph

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return action

    def config(self) -> dict[str, Any]:
        sizes = {"width": self.width, "token": self.token, "heads": self.heads}
        return {"env": self.env.to_json(), "kinds": [list(item) for item in self.kinds], **sizes}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> SwarmPolicy:
        kinds = tuple((int(count), int(rows)) for count, rows in data["kinds"])
        return cls(EnvSpec.from_json(data["env"]), kinds, data["width"], data["token"], data["heads"])


def _apply(layer: nn.Module, x: Float[Tensor, "i n"]) -> Float[Tensor, "j n"]:
    assert isinstance(layer, nn.Linear)
    weight: Tensor = layer.weight
    return weight @ x if layer.bias is None else torch.addmm(layer.bias.unsqueeze(1), weight, x)
