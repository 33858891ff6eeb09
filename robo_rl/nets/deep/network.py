"""Networks of actors and critics beyond the plain MLP, by name. All heads are one batched matrix product.

A network class has the constructor (in_dim, hidden, out_dim, heads), with one width per block in `hidden`. An
actor is a network of one head, critics one of several, so each network is written once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.registry import Table, lookup
from robo_rl.core.shapes import Float

DEEP_NETWORKS: Table = {
    "bronet": ("robo_rl.nets.deep.bronet:BroNet", None),
}


class DeepNetwork(nn.Module, ABC):
    """K networks of the same layers and different weights."""

    @abstractmethod
    def forward(self, x: Float[Tensor, "k b i"]) -> Float[Tensor, "k b o"]:
        """Outputs of the first k heads."""

    @abstractmethod
    def zero_output(self) -> None:
        """Make all outputs 0, whatever the input, until the next update."""

    @property
    @abstractmethod
    def output_bias(self) -> Float[Tensor, "k 1 o"]:
        """Offset of the outputs."""


def make_deep(name: str, in_dim: int, hidden: Sequence[int], out_dim: int, heads: int) -> DeepNetwork:
    """Network with fresh weights from torch's generator. Raises UnknownNameError or ConfigError."""
    net = lookup("network", DEEP_NETWORKS, name)(in_dim, hidden, out_dim, heads)
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


class OneHead(nn.Module):
    """The network of an actor: one head, without a dimension of heads."""

    def __init__(self, net: DeepNetwork) -> None:
        super().__init__()
        self.deep = net

    def forward(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b o"]:
        outputs: Tensor = self.deep(x.unsqueeze(0))
        return outputs.squeeze(0)
