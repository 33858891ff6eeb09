"""Denoising transformer: DiT blocks (Peebles & Xie 2023, adaLN-zero) over the actions of a chunk.

One token per action. Time and observation enter through scale, shift and gate of every block and not as
tokens: the cost does not grow with the observation, and the network is initialised to the zero function at
any depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import setting
from robo_rl.core.shapes import Float
from robo_rl.nets.registry import NetConfig
from robo_rl.nets.time_embedding import SinusoidalTime, per_sample


@dataclass
class TransformerConfig(NetConfig):
    """Settings of the transformer."""

    name: str = "transformer"
    width: int = setting(128, "neurons of each token, divisible by heads", at_least=2)
    depth: int = setting(4, "attention blocks", at_least=0, at_most=100)
    heads: int = setting(4, "attention heads", at_least=1)
    ratio: int = setting(4, "MLP width / width", at_least=1)
    time_scale: float = setting(100.0, "factor of time in [0, 1] before its sinusoidal embedding")
    causal: bool = setting(False, "actions attend to earlier actions only")


class AdaptiveBlock(nn.Module):
    """Attention and MLP, each as h + gate * f((1 + scale) * norm(h) + shift) with scale, shift, gate from
    cond.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = config.width
        self.heads, self.causal = config.heads, config.causal
        self.modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, config.ratio * width)
        self.down = nn.Linear(config.ratio * width, width)

    def forward(self, h: Float[Tensor, "b t w"], cond: Float[Tensor, "b w"]) -> Float[Tensor, "b t w"]:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = (
            self.modulation(cond).unsqueeze(1).chunk(6, dim=-1)
        )
        h = h + gate_a * self._attend(_modulate(h, shift_a, scale_a))
        hidden = F.gelu(self.up(_modulate(h, shift_m, scale_m)), approximate="tanh")
        out: Tensor = h + gate_m * self.down(hidden)
        return out

    def _attend(self, h: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class DenoisingTransformer(nn.Module):
    """Action tokens + learned positions -> adaptive blocks -> zero-initialised linear output."""

    Config = TransformerConfig

    def __init__(self, action_dim: int, chunk: int, cond_dim: int, config: TransformerConfig) -> None:
        super().__init__()
        width = config.width
        if width % config.heads or width % 2:
            raise ConfigError(
                f"Transformer width {width} must be even and divisible by heads={config.heads}."
            )
        self.tokens = nn.Linear(action_dim, width)
        self.position = nn.Parameter(0.02 * torch.randn(chunk, width))
        self.time = nn.Sequential(
            SinusoidalTime(width, config.time_scale), nn.Linear(width, width), nn.SiLU()
        )
        self.cond = nn.Sequential(
            nn.Linear(width + cond_dim, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.blocks = nn.ModuleList([AdaptiveBlock(config) for _ in range(config.depth)])
        self.last_modulation = nn.Linear(width, 2 * width)
        self.last = nn.Linear(width, action_dim)
        for layer in (self.last_modulation, self.last):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: Float[Tensor, "b Tp a"],
        t: Float[Tensor, " b"] | Float[Tensor, ""],
        cond: Float[Tensor, "b c"],
    ) -> Float[Tensor, "b Tp a"]:
        code = self.cond(torch.cat([per_sample(self.time(t), x.shape[0]), cond], dim=-1))
        h = self.tokens(x) + self.position
        for block in self.blocks:
            h = block(h, code)
        shift, scale = self.last_modulation(code).unsqueeze(1).chunk(2, dim=-1)
        out: Tensor = self.last(_modulate(h, shift, scale))
        return out


def _modulate(h: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return torch.addcmul(shift, F.layer_norm(h, h.shape[-1:]), 1.0 + scale)
