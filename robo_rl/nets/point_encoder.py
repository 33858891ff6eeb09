"""Encoder of point clouds: a network per point, then the maximum of every feature over all points.

This is the encoder of 3D Diffusion Policy (Ze et al. 2024): three layers with LayerNorm, a maximum, a
projection. The maximum makes it invariant to the order of points and to duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import check_settings, setting
from robo_rl.core.shapes import Float


@dataclass
class PointEncoderConfig:
    """Settings of the point encoder. Points are in metres in a frame near them, e.g. the robot's base
    frame.
    """

    widths: list[int] = setting([64, 128, 256], "neurons of each layer per point")
    features: int = setting(64, "length of a cloud's feature vector", at_least=1)


class PointEncoder(nn.Module):
    """(b, p, c) float32, p points of c = 3 coordinates [m] (colours may follow) -> (b, features)."""

    def __init__(self, shape: tuple[int, ...], config: PointEncoderConfig) -> None:
        super().__init__()
        check_settings(config, "points.")
        if len(shape) != 2 or shape[1] < 3 or not config.widths or min(config.widths) < 1:
            raise ConfigError(
                f"A point cloud needs shape (points, 3 or more) and widths, found {shape}, {config.widths}."
            )
        self.shape = tuple(shape)
        layers: list[nn.Module] = []
        for i, o in zip([shape[1], *config.widths[:-1]], config.widths, strict=True):
            layers += [nn.Linear(i, o), nn.LayerNorm(o), nn.ReLU()]
        self.each = nn.Sequential(*layers)
        self.project = nn.Sequential(
            nn.Linear(config.widths[-1], config.features), nn.LayerNorm(config.features)
        )

    def forward(self, points: Float[Tensor, "b p c"]) -> Float[Tensor, "b f"]:
        out: Tensor = self.project(self.each(points.float()).amax(dim=1))
        return out
