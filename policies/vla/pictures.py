"""Pictures for prefix networks: crops for training, sizes and patches of pretrained models. Batch first."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from robo_rl.core.shapes import Float, UInt8
from robo_rl.nets.image_encoder import pixels

Side = tuple[int, int]  # height, width [px]


def crop_side(side: Side, crop: float) -> Side:
    """Height and width of a crop whose sides are `crop` times those of the picture."""
    return max(1, round(side[0] * crop)), max(1, round(side[1] * crop))


def cut(
    picture: UInt8[Tensor, "b h w 3"], side: Side, crop: Float[Tensor, "b 2"] | None
) -> UInt8[Tensor, "b ch cw 3"]:
    """Crops of height and width `side`. crop: positions in [0, 1); None: the centre."""
    free = [whole - part for whole, part in zip(picture.shape[1:3], side, strict=True)]
    if crop is None:
        crop = torch.full((picture.shape[0], 2), 0.5, device=picture.device)
    rows, columns = (
        (crop[:, i] * (free[i] + 1)).long().clamp(max=free[i])[:, None]
        + torch.arange(side[i], device=picture.device)
        for i in range(2)
    )
    return pixels(picture, rows, columns)


def resized(
    picture: UInt8[Tensor, "b h w 3"], side: Side, mean: list[float], std: list[float]
) -> Float[Tensor, "b 3 th tw"]:
    """(picture / 255 - mean) / std, resized to height and width `side` by antialiased bicubic weights."""
    values = picture.permute(0, 3, 1, 2).float() / 255.0
    if tuple(values.shape[2:]) != side:
        values = F.interpolate(values, side, mode="bicubic", antialias=True, align_corners=False)
    centre, scale = (values.new_tensor(row).view(3, 1, 1) for row in (mean, std))
    return ((values.clamp(0.0, 1.0) - centre) / scale).contiguous()  # models take views of pictures


def patches(values: Float[Tensor, "b 3 h w"], patch: int, merge: int, repeats: int) -> Float[Tensor, "b n p"]:
    """Flat patches in the order of Qwen's vision models: groups of merge x merge patches, row by row.

    A patch has values channel by channel, each repeated for `repeats` frames.
    """
    b, channels, height, width = values.shape
    rows, columns = height // (patch * merge), width // (patch * merge)
    split = values.reshape(b, channels, rows, merge, patch, columns, merge, patch)
    ordered = split.permute(0, 2, 5, 3, 6, 1, 4, 7).unsqueeze(6)
    frames = ordered.expand(*ordered.shape[:6], repeats, patch, patch)
    return frames.reshape(b, rows * columns * merge * merge, -1)


def smart_side(side: Side, step: int, least: int, most: int) -> Side:
    """Height and width as multiples of `step` with `least` to `most` pixels, near the picture's shape.

    The rule of Qwen2-VL's picture processor (Wang et al. 2024), with its rounding.
    """
    height, width = (max(step, round(length / step) * step) for length in side)
    pixels = side[0] * side[1]
    if height * width > most:
        factor = math.sqrt(pixels / most)
        height, width = (max(step, math.floor(length / factor / step) * step) for length in side)
    elif height * width < least:
        factor = math.sqrt(least / pixels)
        height, width = (math.ceil(length * factor / step) * step for length in side)
    return height, width
