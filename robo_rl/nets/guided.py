"""Denoiser with a label, good or bad, and guidance towards good (classifier-free, Ho and Salimans 2022).

RECAP conditions a policy on whether an action's advantage is high, and samples with guidance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.settings import setting
from robo_rl.core.shapes import Float
from robo_rl.nets.denoiser import MlpDenoiser, MlpDenoiserConfig
from robo_rl.nets.registry import NetConfig, make_net, net_config

NONE, BAD, GOOD = 0, 1, 2  # labels


@dataclass
class GuidedConfig(NetConfig):
    """The network that is conditioned, the size of the network of labels, and the weight of the guidance."""

    name: str = "guided"
    inner: dict[str, Any] = field(default_factory=dict)  # `net_config_json` of the network
    weight: float = setting(1.0, "guidance w: 1 samples the good actions, above 1 exaggerates", at_least=0.0)
    width: int = setting(128, "neurons of each hidden layer of the network of labels", at_least=1)


class GuidedNet(nn.Module):
    """out = net(x, t, c) + w d(x, t, c, good), with d = what a label adds to the network's output.

    c with a label as its last number gives net(x, t, c) + d(x, t, c, label), for training; d of no label is
    0. The last layer of d starts at zero: a new network is its inner one, bit for bit.
    """

    Config = GuidedConfig

    def __init__(self, action_dim: int, chunk: int, cond_dim: int, config: GuidedConfig) -> None:
        super().__init__()
        self.inner = make_net(net_config(config.inner), action_dim, chunk, cond_dim)
        labels = MlpDenoiserConfig(width=config.width, depth=2)
        self.labels = MlpDenoiser(action_dim, chunk, cond_dim + 2, labels)
        last = self.labels.net[-1]
        nn.init.zeros_(last.get_parameter("weight"))
        nn.init.zeros_(last.get_parameter("bias"))
        self.cond_dim, self.weight = cond_dim, config.weight

    def forward(
        self,
        x: Float[Tensor, "b Tp a"],
        t: Float[Tensor, " b"] | Float[Tensor, ""],
        cond: Float[Tensor, "b c"],
    ) -> Float[Tensor, "b Tp a"]:
        seen = cond[:, : self.cond_dim]
        plain: Tensor = self.inner(x, t, seen)
        if cond.shape[-1] == self.cond_dim:
            return plain + self.weight * self.added(x, t, seen, torch.full_like(seen[:, 0], GOOD))
        return plain + self.added(x, t, seen, cond[:, -1])

    def added(
        self, x: Tensor, t: Tensor, cond: Float[Tensor, "b c"], label: Float[Tensor, " b"]
    ) -> Float[Tensor, "b Tp a"]:
        """What the labels add to the output; 0 for no label."""
        # Not `F.one_hot`, which reads the largest label on the host.
        known = torch.stack([label == BAD, label == GOOD], dim=-1).to(cond)
        added: Tensor = self.labels(x, t, torch.cat([cond, known], dim=-1))
        return added * known.sum(-1).view(-1, 1, 1)
