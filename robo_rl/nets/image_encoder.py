"""Small residual network from a camera image (uint8 RGB, classes, or depth [m]) to a feature vector.

It has GroupNorm instead of BatchNorm, because the deployed weights are an exponential moving average
(Diffusion Policy, section IV-B). It crops at random in training and at the centre otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import check_settings, one_of, setting
from robo_rl.core.shapes import Float, Int, Shaped, UInt8
from robo_rl.core.spec import SEGMENTS


@dataclass
class ImageEncoderConfig:
    """Settings of the encoder of camera images."""

    widths: list[int] = setting([32, 64, 128], "channels of each convolution")
    features: int = setting(64, "length of an image's feature vector", at_least=1)
    crop: float = setting(0.9, "side of the crop over the side of the image", above=0.0, at_most=1.0)
    pool: str = one_of("softmax", "mean", help="softmax: expected key points")
    keypoints: int = setting(32, "pool=softmax: expected key points", at_least=1)
    far_m: float = setting(2.0, "depths are clipped to this [m]")


def crop_of(shape: tuple[int, ...], config: ImageEncoderConfig) -> tuple[int, int]:
    """Height and width of the crop of images of this shape."""
    height, width = (max(1, round(side * config.crop)) for side in shape[:2])
    return height, width


def last_map(shape: tuple[int, ...], config: ImageEncoderConfig) -> tuple[int, int]:
    """Height and width of the map that is pooled: the first layer and each of the widths halve the crop, and
    round up.
    """
    halved = 2 ** (1 + len(config.widths))
    height, width = (-(-side // halved) for side in crop_of(shape, config))
    return height, width


def check_positions(
    shapes: Mapping[str, tuple[int, ...]], config: ImageEncoderConfig, prefix: str = "image."
) -> None:
    """Raise ConfigError for a new encoder that would not see its pictures: expected key points of a map of
    one pixel do not depend on it; and for key points of an encoder without any. shapes: of the pictures, by
    their names for the message.

    Encoders that are loaded are not checked, so that policies saved before can still be read.
    """
    if shapes and config.pool == "mean" and config.keypoints != ImageEncoderConfig().keypoints:
        raise ConfigError(
            f"{prefix}keypoints={config.keypoints} has no effect with {prefix}pool=mean. Leave it out."
        )
    for name, shape in shapes.items():
        if config.pool == "softmax" and last_map(shape, config) == (1, 1):
            height, width = crop_of(shape, config)
            if last_map(shape, replace(config, crop=1.0)) != (1, 1):
                raise ConfigError(
                    f"{prefix}crop={config.crop:g} leaves {width} x {height} pixels of {name}, of which "
                    f"{prefix}widths={config.widths} leaves one, and {prefix}pool=softmax reads positions. "
                    f"Give a larger {prefix}crop, up to 1."
                )
            raise ConfigError(
                f"{prefix}widths={config.widths} leaves one pixel of the {width} x {height} that a crop of "
                f"{name} has, and {prefix}pool=softmax reads positions. Give fewer widths, larger pictures, "
                f"or {prefix}pool=mean."
            )


LEAST_STRIDED = 16  # channels from which oneDNN's strided 1x1 convolution stays inside its memory


class ResidualStage(nn.Module):
    """Halve the resolution: two 3x3 convolutions with GroupNorm, and a 1x1 skip.

    The gradient of a 1x1 convolution with stride 2 writes past its memory on the CPU, in oneDNN 3.12 (torch
    2.13), for fewer than 16 input channels in the layout of images; a skip of those takes every second pixel
    first, which is the same function.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        groups = next(
            g for g in range(max(1, out_dim // 16), 0, -1) if out_dim % g == 0
        )  # of 16 or more channels each
        self.first = nn.Conv2d(in_dim, out_dim, 3, stride=2, padding=1)
        self.norm_first = nn.GroupNorm(groups, out_dim)
        self.second = nn.Conv2d(out_dim, out_dim, 3, padding=1)
        self.norm_second = nn.GroupNorm(groups, out_dim)
        self.thins = in_dim < LEAST_STRIDED
        self.skip = nn.Conv2d(in_dim, out_dim, 1, stride=1 if self.thins else 2)

    def forward(self, x: Float[Tensor, "b i h w"]) -> Float[Tensor, "b o h2 w2"]:
        h = F.relu(self.norm_first(self.first(x)))
        return F.relu(self.norm_second(self.second(h)) + self.skip(x[..., ::2, ::2] if self.thins else x))


class SpatialSoftmax(nn.Module):
    """Expected (x, y) of each channel's softmax over the image, in [-1, 1] (Levine et al. 2016)."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b f"]:
        h, w = x.shape[-2:]
        weight = torch.softmax(x.flatten(2), dim=-1).unflatten(-1, (h, w))
        across = torch.linspace(-1.0, 1.0, w, dtype=x.dtype, device=x.device)
        down = torch.linspace(-1.0, 1.0, h, dtype=x.dtype, device=x.device)
        return torch.cat([(weight.sum(2) * across).sum(-1), (weight.sum(3) * down).sum(-1)], dim=-1)


class ImageEncoder(nn.Module):
    """(b, h, w, 3) uint8, (b, h, w, 1) uint8 classes, or (b, h, w) depth [m] -> (b, features).

    offset: (b, 2) in [0, 1), position of the crop between the top left (0) and the bottom right corner; None:
    the centre. The caller draws it; the encoder draws no random numbers.
    """

    def __init__(self, shape: tuple[int, ...], config: ImageEncoderConfig, classes: bool = False) -> None:
        """Build the layers for images of this shape. classes: an image (h, w, 1) holds indices into
        `SEGMENTS`, which are encoded as one channel each.
        """
        super().__init__()
        check_settings(config, "image.")
        if not config.widths or min(config.widths) < 1:
            raise ConfigError(
                f"image.widths={config.widths} cannot be used: give the channels of each level."
            )
        channels: dict[tuple[int, ...], int] = {(1,): len(SEGMENTS)} if classes else {(3,): 3, (): 1}
        if len(shape) not in (2, 3) or shape[2:] not in channels:
            raise ConfigError(
                "Images must be (height, width, 3), depths (height, width), segmentations (height, width, "
                f"1); found {shape}."
            )
        self.shape = tuple(shape)
        self.crop_h, self.crop_w = crop_of(shape, config)
        stem = config.widths[0]
        self.far_m = config.far_m
        self.stem = nn.Conv2d(channels[shape[2:]], stem, 5, stride=2, padding=2)
        pairs = zip([stem, *config.widths[:-1]], config.widths, strict=True)
        self.stages = nn.Sequential(*[ResidualStage(i, o) for i, o in pairs])
        self.pool = _pooling(config)
        pooled = 2 * config.keypoints if config.pool == "softmax" else config.widths[-1]
        self.project = nn.Sequential(nn.Linear(pooled, config.features), nn.LayerNorm(config.features))

    def forward(
        self, image: Shaped[Tensor, "b h w *rgb"], offset: Float[Tensor, "b 2"] | None = None
    ) -> Float[Tensor, "b f"]:
        cut = self._crop(image, offset)
        if self.shape[2:] == (1,):
            classes = torch.arange(len(SEGMENTS), dtype=torch.uint8, device=cut.device)
            x = (cut == classes).permute(0, 3, 1, 2).float() * 2.0 - 1.0
        elif len(self.shape) == 3:
            x = cut.permute(0, 3, 1, 2).float() / 127.5 - 1.0
        else:
            x = cut.unsqueeze(1).float().clamp(0.0, self.far_m) * (2.0 / self.far_m) - 1.0
        out: Tensor = self.project(self.pool(self.stages(F.relu(self.stem(x)))))
        return out

    def _crop(
        self, image: Shaped[Tensor, "b h w *rgb"], offset: Float[Tensor, "b 2"] | None
    ) -> Shaped[Tensor, "b ch cw *rgb"]:
        free_h, free_w = self.shape[0] - self.crop_h, self.shape[1] - self.crop_w
        if offset is None:
            top, left = free_h // 2, free_w // 2
            return image[:, top : top + self.crop_h, left : left + self.crop_w]
        rows = _span(offset[:, 0], free_h, self.crop_h)
        columns = _span(offset[:, 1], free_w, self.crop_w)
        return pixels(image, rows, columns)


def pixels(
    image: Shaped[Tensor, "b h w *rgb"], rows: Int[Tensor, "b r"], columns: Int[Tensor, "b c"]
) -> Shaped[Tensor, "b r c *rgb"]:
    """image[b, rows[b, i], columns[b, j]], by one index of pixels, which is faster on a CPU."""
    b, h, w = image.shape[:3]
    first = torch.arange(0, b * h, h, device=image.device)  # row of all pictures below each other
    index = (first[:, None] + rows).mul(w)[:, :, None] + columns[:, None, :]
    picked: Tensor = image.flatten(0, 2).index_select(0, index.flatten()).unflatten(0, index.shape)
    return picked


def _span(offset: Float[Tensor, " b"], free: int, length: int) -> Int[Tensor, "b l"]:
    start = (offset * (free + 1)).long().clamp(max=free)
    return start[:, None] + torch.arange(length, device=offset.device)


def _pooling(config: ImageEncoderConfig) -> nn.Sequential:
    if config.pool == "softmax":
        return nn.Sequential(nn.Conv2d(config.widths[-1], config.keypoints, 1), SpatialSoftmax())
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


def random_shift(images: UInt8[Tensor, "b h w c"], shift: Int[Tensor, "b 2"]) -> UInt8[Tensor, "b h w c"]:
    """Each image moved by its own (down, right) pixels; the border is repeated (the augmentation of DrQ-v2,
    Yarats et al. 2021, section 3.1).

    Equal to padding by p and cropping at (p - down, p - right), for any p of at least |shift|. The caller
    draws the shifts, uniform in [-4, 4] in the paper, and the same for all frames of a window.
    """
    _, h, w, _ = images.shape
    rows = (torch.arange(h, device=images.device) - shift[:, :1]).clamp(0, h - 1)
    columns = (torch.arange(w, device=images.device) - shift[:, 1:]).clamp(0, w - 1)
    return pixels(images, rows, columns)
