"""Denoiser for states and short chunks: one MLP over the flattened chunk."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robo_rl.core.settings import setting
from robo_rl.core.shapes import Float
from robo_rl.nets.mlp import activation_module, mlp
from robo_rl.nets.registry import NetConfig
from robo_rl.nets.time_embedding import SinusoidalTime, per_sample


@dataclass
class MlpDenoiserConfig(NetConfig):
    """Settings of the MLP denoiser."""

    name: str = "mlp"
    width: int = setting(256, "neurons of each hidden layer", at_least=1)
    depth: int = setting(3, "hidden layers", at_least=0, at_most=100)
    time_dim: int = setting(32, "length of the time embedding", at_least=2)
    time_scale: float = setting(100.0, "factor of time in [0, 1] before its sinusoidal embedding")
    activation: str = setting("gelu", "relu, mish, silu, gelu or tanh")
    layer_norm: bool = setting(False, "LayerNorm before each activation")
    residual: bool = setting(False, "pre-norm residual blocks, for deep or wide networks")


class ResidualBlock(nn.Module):
    """h + W2 act(W1 LayerNorm(h)), with twice the width inside."""

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.act = activation_module(activation)
        self.down = nn.Linear(2 * width, width)

    def forward(self, h: Float[Tensor, "b w"]) -> Float[Tensor, "b w"]:
        out: Tensor = h + self.down(self.act(self.up(self.norm(h))))
        return out


class MlpDenoiser(nn.Module):
    """concat(x, embed(t), cond) -> MLP -> (b, Tp, a)."""

    Config = MlpDenoiserConfig

    def __init__(self, action_dim: int, chunk: int, cond_dim: int, config: MlpDenoiserConfig) -> None:
        super().__init__()
        flat, width = action_dim * chunk, config.width
        self.time = SinusoidalTime(config.time_dim, config.time_scale)
        in_dim = flat + config.time_dim + cond_dim
        if config.residual:
            blocks = [ResidualBlock(width, config.activation) for _ in range(config.depth)]
            self.net = nn.Sequential(
                nn.Linear(in_dim, width), *blocks, nn.LayerNorm(width), nn.Linear(width, flat)
            )
        else:
            hidden = (width,) * config.depth
            self.net = mlp(in_dim, hidden, flat, layer_norm=config.layer_norm, activation=config.activation)

    def forward(
        self,
        x: Float[Tensor, "b Tp a"],
        t: Float[Tensor, " b"] | Float[Tensor, ""],
        cond: Float[Tensor, "b c"],
    ) -> Float[Tensor, "b Tp a"]:
        out: Tensor = self.net(torch.cat([x.flatten(1), per_sample(self.time(t), x.shape[0]), cond], dim=-1))
        return out.view(x.shape)
