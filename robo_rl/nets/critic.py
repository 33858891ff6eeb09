"""Ensembles of critics, all heads in one batched matrix product."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robo_rl.core.shapes import Float, Int
from robo_rl.nets.deep.network import InputNorm, make_deep
from robo_rl.nets.support import Quantiles, Support, returns_of


class CriticEnsemble(nn.Module):
    """K independent Q(x, a); returns (K, b).

    network: mlp, with LayerNorm and ReLU, or a name of `nets.deep.network`. The norms of an mlp have no gain
    and shift: the next layer's weights can represent both, and on a CPU their two element-wise passes cost as
    much as the matrix product at these sizes.

    bias: initial output bias of every head; with sparse 0/1 rewards the base's success rate is a better start
    than 0. Initial weights of each head follow torch.nn.Linear. margin: default margin of a policy that
    chooses between two actions by `compare`; training may change it. support: atoms or quantiles of critics
    that give a distribution of returns; Q is its mean. None: each head gives Q itself. normalize: x is
    normalised by statistics that the learner writes; not for mlp.
    """

    def __init__(
        self, in_dim: int, hidden: Sequence[int], heads: int = 2, layer_norm: bool = True, bias: float = 0.0,
        margin: float = 0.0, support: Support | Quantiles | Mapping[str, Any] | None = None,
        network: str = "mlp", normalize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._config = {"in_dim": in_dim, "hidden": list(hidden), "heads": heads, "layer_norm": layer_norm}
        self.heads, self.layer_norm, self.margin = heads, layer_norm, margin
        self.support = returns_of(support) if isinstance(support, Mapping) else support
        sizes = (in_dim, *hidden, 1 if self.support is None else self.support.atoms)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.network = network
        self.input_norm: InputNorm | None = None
        if network != "mlp":
            self.deep = make_deep(network, in_dim, hidden, sizes[-1], heads)
            self.input_norm = InputNorm(in_dim) if normalize else None
            return
        for fan_in, fan_out in pairwise(sizes):
            bound = 1.0 / math.sqrt(fan_in)
            self.weights.append(nn.Parameter(torch.empty(heads, fan_in, fan_out).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(heads, 1, fan_out).uniform_(-bound, bound)))
        if self.support is None:
            with torch.no_grad():
                self.biases[-1].fill_(bias)

    def forward(
        self, x: Float[Tensor, "b i"], action: Float[Tensor, "b a"], heads: int | None = None
    ) -> Float[Tensor, "k b"]:
        """Q of the first `heads` heads, by default of all."""
        return self.q(self.outputs(x, action, heads))

    def q(self, outputs: Float[Tensor, "k b n"]) -> Float[Tensor, "k b"]:
        """Q of these outputs."""
        return outputs.squeeze(-1) if self.support is None else self.support.mean(outputs)

    def outputs(
        self, x: Float[Tensor, "b i"], action: Float[Tensor, "b a"], heads: int | None = None
    ) -> Float[Tensor, "k b n"]:
        """Outputs of the heads: Q, n = 1, or the logits of the n atoms of categorical critics."""
        k = heads or self.heads
        h = torch.cat([x, action], dim=-1)
        if self.network != "mlp":
            h = h if self.input_norm is None else self.input_norm(h)
            out: Tensor = self.deep(h.expand(k, -1, -1))
            return out
        h = h.expand(k, -1, -1)
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias[:k], h, weight[:k])
            if i < last:
                if self.layer_norm:
                    h = F.layer_norm(h, h.shape[-1:])
                h = torch.relu(h)
        return h

    def compare(
        self,
        x: Float[Tensor, "b i"],
        first: Float[Tensor, "b a"],
        second: Float[Tensor, "b a"],
        margin: float = 0.0,
    ) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """(lower bound of Q for `first`, upper bound for `second`), in one pass.

        The bounds are the mean over heads minus and plus `margin` standard deviations. With margin 1 and two
        heads they are the lower and the higher head.
        """
        q = self(torch.cat([x, x]), torch.cat([first, second])).view(
            self.heads, 2, -1
        )  # chunk(2) would fix the batch size in a captured graph
        return bounds(q, margin)

    def best_of(self, x: Float[Tensor, "b i"], options: Float[Tensor, "b n a"]) -> Int[Tensor, " b"]:
        """Number of the option with the highest mean Q over heads; 0 unless another one is higher."""
        rows = x.unsqueeze(1).expand(-1, options.shape[1], -1).flatten(0, 1)
        q = self(rows, options.flatten(0, 1)).mean(dim=0).view(options.shape[:2])
        best = q.argmax(dim=1)
        higher = q.gather(1, best.unsqueeze(1)).squeeze(1) > q[:, 0]
        return torch.where(higher, best, 0)

    def config(self) -> dict[str, Any]:
        """Arguments that rebuild these critics."""
        support = {} if self.support is None else {"support": asdict(self.support)}
        deep: dict[str, Any] = {}
        if self.network != "mlp":
            deep = {"network": self.network, "normalize": self.input_norm is not None}
        return self._config | {"margin": self.margin} | support | deep


def bounds(q: Float[Tensor, "k 2 b"], margin: float) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """(lower bound of the first action's Q, upper bound of the second's), see `CriticEnsemble.compare`."""
    mean = q.mean(dim=0)
    if margin == 0.0:
        return mean[0], mean[1]
    apart = margin * (q - mean).square().mean(dim=0).sqrt()
    return mean[0] - apart[0], mean[1] + apart[1]
