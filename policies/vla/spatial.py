"""Spatial prompting: the policy predicts where in each picture to act, and its actions depend on that.

As in InternVLA-M1 (2025, 2510.13778): an auxiliary loss against the simulator's label makes the prefix
locate the object of the instruction, and the prediction conditions the action expert. Points are in the
crop of the picture: x to the right, y down, -1 and 1 at its edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from policies.vla.pictures import Side
from robo_rl.core.shapes import Float


class PointHead(nn.Module):
    """(output of the prefix at the token of key points, the key points) -> point (b, 2)."""

    def __init__(self, width: int, key_points: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width + key_points, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, output: Float[Tensor, "b w"], key_points: Float[Tensor, "b p"]) -> Float[Tensor, "b 2"]:
        point: Tensor = self.net(torch.cat([output, key_points], dim=1))
        return point


def in_crop(
    point: Float[Tensor, "b 2"], whole: Side, part: Side, crop: Float[Tensor, "b 2"] | None
) -> Float[Tensor, "b 2"]:
    """A point of the picture as one of its crop, which `pictures.cut` takes from the same place."""
    if crop is None:
        crop = torch.full_like(point, 0.5)
    columns = []
    for axis, (length, cropped) in enumerate(zip(reversed(whole), reversed(part), strict=True)):
        free = length - cropped
        first_px = (crop[:, 1 - axis] * (free + 1)).long().clamp(max=free)  # crop: rows, then columns
        at_px = 0.5 * (point[:, axis] + 1.0) * length - first_px
        columns.append(2.0 * at_px / cropped - 1.0)
    return torch.stack(columns, dim=1)


def point_loss(
    predicted: Float[Tensor, "b c 2"],
    targets: Sequence[Float[Tensor, "b 2"] | None],
    wholes: Sequence[Side],
    parts: Sequence[Side],
    crop: Float[Tensor, "b c 2"] | None,
) -> Float[Tensor, " b"]:
    """Mean square of the error over coordinates and cameras; 0 without any target.

    targets: in the whole pictures; None for a camera that is left out of the mean.
    """
    sides = zip(targets, wholes, parts, strict=True)
    errors = [
        predicted[:, i] - in_crop(target, whole, part, None if crop is None else crop[:, i])
        for i, (target, whole, part) in enumerate(sides)
        if target is not None
    ]
    return (
        torch.stack(errors, dim=1).square().mean(dim=(1, 2))
        if errors
        else predicted.new_zeros(len(predicted))
    )
