"""Networks of actors and critics beyond the plain MLP, by name. All heads are one batched matrix product.

A network class has the constructor (in_dim, hidden, out_dim, heads, parts), with one width per block in
`hidden`; `parts` equal parts of the outputs are predicted apart. Actors have one head, critics several, so
each network is written once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.registry import Table, lookup
from robo_rl.core.shapes import Float

DEEP_NETWORKS: Table = {
    "bronet": ("robo_rl.nets.deep.bronet:BroNet", None),
    "simba_v2": ("robo_rl.nets.deep.simba_v2:SimbaV2", None),
    "xqc": ("robo_rl.nets.deep.xqc:Xqc", None),
}


class DeepNetwork(nn.Module, ABC):
    """K networks of the same layers and different weights."""

    @abstractmethod
    def forward(self, x: Float[Tensor, "k b i"]) -> Float[Tensor, "k b o"]:
        """Outputs of the first k heads."""

    @abstractmethod
    def zero_output(self) -> None:
        """Make all outputs 0, whatever the input, or near 0 where the weights have a fixed length."""

    @property
    @abstractmethod
    def output_bias(self) -> Float[Tensor, "k 1 o"]:
        """Offset of the outputs, or of their first part."""


def make_deep(
    name: str, in_dim: int, hidden: Sequence[int], out_dim: int, heads: int, parts: int = 1
) -> DeepNetwork:
    """Network with fresh weights from torch's generator. Raises UnknownNameError or ConfigError."""
    net = lookup("network", DEEP_NETWORKS, name)(in_dim, hidden, out_dim, heads, parts)
    assert isinstance(net, DeepNetwork)
    return net


def one_width(name: str, hidden: Sequence[int]) -> int:
    """Width of all blocks. Raises ConfigError if there are several."""
    if len(set(hidden)) != 1:
        raise ConfigError(
            f"learner.network={name} adds its blocks to one stream: all numbers of learner.hidden, and all "
            f"of learner.critic_hidden, must be equal, found {list(hidden)}."
        )
    return hidden[0]


class InputNorm(nn.Module):
    """(x - mean) / deviation. The learner writes both (`rl.off_policy.deep.scaling`); first they are 0, 1."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def forward(self, x: Float[Tensor, "... i"]) -> Float[Tensor, "... i"]:
        return (x - self.mean) / self.deviation

    @torch.no_grad()
    def set(self, mean: Float[Tensor, " f"], deviation: Float[Tensor, " f"]) -> None:
        """Statistics of the first f inputs."""
        self.mean[: len(mean)] = mean
        self.deviation[: len(mean)] = deviation


class OneHead(nn.Module):
    """The network of an actor: one head, without a dimension of heads. norm: of the inputs; None: none."""

    def __init__(self, net: DeepNetwork, norm: InputNorm | None = None) -> None:
        super().__init__()
        self.deep, self.norm = net, norm

    def forward(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b o"]:
        x = x if self.norm is None else self.norm(x)
        outputs: Tensor = self.deep(x.unsqueeze(0))
        return outputs.squeeze(0)
