"""Conditional 1-D U-Net of Diffusion Policy (Chi et al. 2023, section III and appendix A) with fast
convolutions.

Its layers equal the published network: with 256/512/1024 it has 65,783,298 parameters (a = 2, cond 40).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import setting
from robo_rl.core.shapes import Float
from robo_rl.nets.conv1d import Conv1d, Upsample1d
from robo_rl.nets.registry import NetConfig
from robo_rl.nets.time_embedding import SinusoidalTime, per_sample


@dataclass
class Unet1dConfig(NetConfig):
    """Settings of the 1-D U-Net. Each further level of `widths` halves the time axis."""

    name: str = "unet1d"
    widths: list[int] = setting([64, 128, 256], "channels per level")
    kernel: int = setting(5, "width of the convolutions over time, odd", at_least=1)
    groups: int = setting(8, "groups of GroupNorm", at_least=1)
    time_dim: int = setting(256, "length of the time embedding", at_least=2)
    time_scale: float = setting(100.0, "factor of time in [0, 1] before its sinusoidal embedding")


class ConvBlock(nn.Module):
    """Conv1d -> GroupNorm -> Mish."""

    def __init__(self, in_dim: int, out_dim: int, kernel: int, groups: int) -> None:
        super().__init__()
        self.conv = Conv1d(in_dim, out_dim, kernel, padding=kernel // 2)
        self.norm = nn.GroupNorm(groups, out_dim)
        self.act = nn.Mish()

    def forward(self, x: Float[Tensor, "b i t"]) -> Float[Tensor, "b o t"]:
        out: Tensor = self.act(self.norm(self.conv(x)))
        return out


class FilmResidualBlock(nn.Module):
    """Two convolution blocks with FiLM in between, h -> scale(cond) * h + bias(cond), and a residual
    connection.
    """

    def __init__(self, in_dim: int, out_dim: int, cond_dim: int, kernel: int, groups: int) -> None:
        super().__init__()
        self.first = ConvBlock(in_dim, out_dim, kernel, groups)
        self.second = ConvBlock(out_dim, out_dim, kernel, groups)
        self.film = nn.Sequential(nn.Mish(), nn.Linear(cond_dim, 2 * out_dim))
        self.skip: nn.Module = Conv1d(in_dim, out_dim, 1) if in_dim != out_dim else nn.Identity()

    def forward(self, x: Float[Tensor, "b i t"], cond: Float[Tensor, "b c"]) -> Float[Tensor, "b o t"]:
        scale, bias = self.film(cond).unsqueeze(-1).chunk(2, dim=1)
        out: Tensor = self.second(scale * self.first(x) + bias) + self.skip(x)
        return out


class ConditionalUnet1D(nn.Module):
    """Denoiser over the time axis of a chunk, conditioned on time and observation by FiLM at every block."""

    Config = Unet1dConfig

    def __init__(self, action_dim: int, chunk: int, cond_dim: int, config: Unet1dConfig) -> None:
        super().__init__()
        widths, kernel, groups = list(config.widths), config.kernel, config.groups
        _check(chunk, widths, kernel, groups)
        dim = config.time_dim
        self.time = nn.Sequential(
            SinusoidalTime(dim, config.time_scale),
            nn.Linear(dim, 4 * dim),
            nn.Mish(),
            nn.Linear(4 * dim, dim),
        )

        def block(i: int, o: int) -> FilmResidualBlock:
            return FilmResidualBlock(i, o, dim + cond_dim, kernel, groups)

        pairs = list(pairwise([action_dim, *widths]))
        self.down = nn.ModuleList([nn.ModuleList([block(i, o), block(o, o)]) for i, o in pairs])
        self.shrink = nn.ModuleList([Conv1d(w, w, 3, stride=2, padding=1) for w in widths[:-1]])
        self.middle = nn.ModuleList([block(widths[-1], widths[-1]) for _ in range(2)])
        self.up = nn.ModuleList(
            [nn.ModuleList([block(2 * o, i), block(i, i)]) for i, o in reversed(pairs[1:])]
        )
        self.grow = nn.ModuleList([Upsample1d(i) for i, _ in reversed(pairs[1:])])
        self.last = nn.Sequential(
            ConvBlock(widths[0], widths[0], kernel, groups), Conv1d(widths[0], action_dim, 1)
        )

    def forward(
        self,
        x: Float[Tensor, "b Tp a"],
        t: Float[Tensor, " b"] | Float[Tensor, ""],
        cond: Float[Tensor, "b c"],
    ) -> Float[Tensor, "b Tp a"]:
        cond = torch.cat([per_sample(self.time(t), x.shape[0]), cond], dim=-1)
        h, skips = x.transpose(1, 2), []
        for i, blocks in enumerate(self.down):
            h = _run(blocks, h, cond)
            skips.append(h)
            if i < len(self.shrink):
                h = self.shrink[i](h)
        h = _run(self.middle, h, cond)
        for blocks, grow in zip(self.up, self.grow, strict=True):
            h = grow(_run(blocks, torch.cat([h, skips.pop()], dim=1), cond))
        out: Tensor = self.last(h).transpose(1, 2)
        return out


def _run(blocks: nn.Module, h: Tensor, cond: Tensor) -> Tensor:
    assert isinstance(blocks, nn.ModuleList)
    for block in blocks:
        h = block(h, cond)
    return h


def _check(chunk: int, widths: list[int], kernel: int, groups: int) -> None:
    if len(widths) < 2 or any(width < 1 or width % groups for width in widths) or kernel % 2 == 0:
        raise ConfigError(
            f"A 1-D U-Net needs at least two widths divisible by groups={groups} and an odd kernel, "
            f"found widths {widths} and kernel {kernel}."
        )
    if chunk % 2 ** (len(widths) - 1):
        raise ConfigError(
            f"A 1-D U-Net with {len(widths)} levels needs a chunk divisible by {2 ** (len(widths) - 1)}, "
            f"found {chunk}."
        )
