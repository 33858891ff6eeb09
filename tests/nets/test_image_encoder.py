"""Image encoders: crops, spatial softmax, and dependence on the image's content."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import SEGMENTS
from robo_rl.nets.image_encoder import (
    ImageEncoder,
    ImageEncoderConfig,
    ResidualStage,
    SpatialSoftmax,
    check_positions,
    last_map,
    pixels,
)

TINY = ImageEncoderConfig(widths=[8, 16], features=12, keypoints=4, crop=0.75)


def test_crop_corners_and_centre() -> None:
    """On 8 x 8 with crop 6: offset 0 starts at row 0, offsets near 1 at row 2, no offset at row 1."""
    encoder = ImageEncoder((8, 8, 3), TINY)
    image = torch.arange(8, dtype=torch.uint8)[None, :, None, None].expand(3, 8, 8, 3)
    offset = torch.tensor([[0.0, 0.0], [0.999, 0.5], [0.34, 0.999]])
    assert encoder._crop(image, offset)[:, 0, 0, 0].tolist() == [0, 2, 1]
    assert encoder._crop(image, None)[:, 0, 0, 0].tolist() == [1, 1, 1]
    assert encoder._crop(image, offset).shape == (3, 6, 6, 3)


@pytest.mark.parametrize("channels", [(), (1,), (3,)])
def test_pixels_equal_an_index_of_each_picture(channels: tuple[int, ...]) -> None:
    """Rows and columns in any order and more than once; depths have no channel."""
    image = torch.arange(2 * 5 * 7 * math.prod(channels)).view(2, 5, 7, *channels)
    rows, columns = torch.tensor([[4, 0, 0], [1, 2, 3]]), torch.tensor([[6, 1], [0, 0]])
    expected = torch.stack([each[r][:, c] for each, r, c in zip(image, rows, columns, strict=True)])
    assert torch.equal(pixels(image, rows, columns), expected)


def test_spatial_softmax_finds_a_bright_pixel() -> None:
    """A peak at column 3 of 5, row 1 of 5 is the point (0.5, -0.5)."""
    x = torch.zeros(1, 1, 5, 5)
    x[0, 0, 1, 3] = 100.0
    torch.testing.assert_close(SpatialSoftmax()(x), torch.tensor([[0.5, -0.5]]))


@pytest.mark.parametrize("pool", ["softmax", "mean"])
def test_features_see_the_picture(pool: str) -> None:
    """uint8 in, finite features out: different for different images, equal for equal ones."""
    torch.manual_seed(0)
    config = ImageEncoderConfig(widths=[8, 16], features=12, keypoints=4, pool=pool)
    encoder = ImageEncoder((24, 32, 3), config)
    image = torch.randint(0, 256, (2, 24, 32, 3), dtype=torch.uint8)
    features = encoder(image)
    assert features.shape == (2, 12)
    assert features.isfinite().all()
    assert (features[0] - features[1]).abs().max() > 1e-3
    assert encoder(image).equal(features)


def test_bad_settings_are_refused() -> None:
    """Grey images or a crop of nothing cannot be encoded."""
    with pytest.raises(ConfigError, match=r"\(height, width, 3\)"):
        ImageEncoder((8, 8, 1), TINY)
    with pytest.raises(ConfigError, match=r"image\.pool=max cannot be used, expected: softmax \| mean"):
        ImageEncoder((8, 8, 3), ImageEncoderConfig(pool="max"))


@pytest.mark.parametrize("shape", [(16, 16, 3), (17, 18, 3), (18, 40, 3), (24, 24), (36, 35, 1), (5, 3, 3)])
@pytest.mark.parametrize("widths", [[4], [4, 4, 4], [4, 4, 4, 4]])
def test_the_last_map_is_that_of_the_network(shape: tuple[int, ...], widths: list[int]) -> None:
    """Where it is one pixel, different pictures have the same key points, and a new encoder is refused."""
    torch.manual_seed(0)
    config = ImageEncoderConfig(widths=widths, keypoints=4)
    encoder = ImageEncoder(shape, config, classes=shape[2:] == (1,))
    maps: list[torch.Size] = []
    encoder.pool.register_forward_pre_hook(lambda _, given: maps.append(given[0].shape[-2:]))
    pictures = torch.randint(0, 4, (2, *shape), dtype=torch.uint8)
    features = encoder(pictures if len(shape) == 3 else pictures.float())
    assert maps == [last_map(shape, config)]
    if maps != [(1, 1)]:
        check_positions({"image.view": shape}, config)
        return
    assert features[0].equal(features[1])
    with pytest.raises(ConfigError, match=r"leaves.* of image\.view.* image\.pool=softmax reads"):
        check_positions({"image.view": shape}, config)


def test_every_picture_is_checked() -> None:
    """The second is too small; the settings are named as they are typed, and a mean of one pixel is used."""
    shapes = {"image.view": (84, 84, 3), "depth.hand": (16, 16)}
    config = ImageEncoderConfig()
    with pytest.raises(ConfigError, match=r"method\.image\.widths=.* 14 x 14 .* of depth\.hand has"):
        check_positions(shapes, config, "method.image.")
    check_positions(shapes, ImageEncoderConfig(pool="mean"))
    with pytest.raises(ConfigError, match="76 x 76"):
        check_positions(shapes, ImageEncoderConfig(widths=[4] * 6))


@pytest.mark.parametrize("crop", [0.05, 0.12])
def test_a_crop_that_leaves_one_pixel_is_named(crop: float) -> None:
    """Fewer widths would not help: 0.05 of 24 pixels is one."""
    config = ImageEncoderConfig(widths=[4, 8], crop=crop)
    with pytest.raises(ConfigError, match=rf"image\.crop={crop:g} leaves . x . pixels .* larger image\.crop"):
        check_positions({"image.view": (24, 24, 3)}, config)
    check_positions({"image.view": (24, 24, 3)}, replace(config, crop=0.9))


def test_key_points_without_softmax_are_refused() -> None:
    """Where there are pictures; without any, no setting of the encoder has an effect."""
    config = ImageEncoderConfig(pool="mean", keypoints=16)
    with pytest.raises(ConfigError, match=r"image\.keypoints=16 has no effect with image\.pool=mean"):
        check_positions({"image.view": (84, 84, 3)}, config)
    check_positions({}, config)


@pytest.mark.parametrize("widths", [[50], [40, 100], [17, 34]])
def test_any_width_can_be_normalised_in_groups(widths: list[int]) -> None:
    """16 channels per group if that divides them, else the nearest divisor; 32, 64, 128 as before."""
    encoder = ImageEncoder((24, 24, 3), ImageEncoderConfig(widths=widths, keypoints=4, features=8))
    assert encoder(torch.zeros(2, 24, 24, 3, dtype=torch.uint8)).shape == (2, 8)
    usual = ImageEncoder((24, 24, 3), ImageEncoderConfig())
    assert [m.num_groups for m in usual.modules() if isinstance(m, torch.nn.GroupNorm)] == [2, 2, 4, 4, 8, 8]


@pytest.mark.parametrize(
    ("setting", "value"), [("widths", []), ("widths", [8, 0]), ("features", 0), ("keypoints", 0)]
)
def test_sizes_that_make_no_encoder_are_named(setting: str, value: Any) -> None:
    """A sentence with the setting, not torch's error about weights."""
    with pytest.raises(ConfigError, match=rf"image\.{setting}="):
        ImageEncoder((24, 24, 3), ImageEncoderConfig(**{setting: value}))


def test_depths_are_pictures_of_one_channel() -> None:
    """Depths above far_m are equal; smaller ones are distinguished."""
    torch.manual_seed(0)
    config = ImageEncoderConfig(widths=[8, 16], features=12, keypoints=4, far_m=2.0)
    encoder = ImageEncoder((24, 32), config)
    depth_m = torch.rand(2, 24, 32) + 0.5
    features = encoder(depth_m, torch.zeros(2, 2)).detach()
    assert features.shape == (2, 12)
    torch.testing.assert_close(encoder(torch.full((1, 24, 32), 2.0)), encoder(torch.full((1, 24, 32), 9.0)))
    assert float((encoder(1.2 * depth_m, torch.zeros(2, 2)).detach() - features).abs().max()) > 1e-3


def test_classes_are_channels_and_not_shades() -> None:
    """Exchanging two classes changes the features, and unknown numbers belong to no class; grey images are
    refused.
    """
    encoder = ImageEncoder((12, 12, 1), ImageEncoderConfig(widths=[8, 8]), classes=True)
    assert encoder.stem.in_channels == len(SEGMENTS)
    seen: list[torch.Tensor] = []
    encoder.stem.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    classes = torch.tensor([0, 3, 9], dtype=torch.uint8).repeat(1, 12, 4)[..., None]
    assert encoder(classes).shape == (1, 64)
    first = [seen[0][0, :, 5, column].tolist() for column in range(3)]  # the crop begins at column 0 or 1
    assert sorted(first) == [[-1.0, -1.0, -1.0, -1.0], [-1.0, -1.0, -1.0, 1.0], [1.0, -1.0, -1.0, -1.0]]
    with pytest.raises(ConfigError, match="segmentations"):
        ImageEncoder((12, 12, 1), ImageEncoderConfig())


def test_a_narrow_skip_is_the_strided_convolution_and_keeps_its_memory() -> None:
    """Pixels thinned first give the same as stride 2; ten backward passes in the layout of images with fewer
    than 16 channels do not end the process, as they did by oneDNN's gradient of the strided one.
    """
    torch.manual_seed(0)
    stage = ResidualStage(8, 8)
    image = torch.randn(16, 8, 58, 58).contiguous(memory_format=torch.channels_last)
    strided = torch.nn.functional.conv2d(image, stage.skip.weight, stage.skip.bias, stride=2)
    torch.testing.assert_close(stage.skip(image[..., ::2, ::2]), strided)
    for _ in range(10):
        stage(image.requires_grad_()).sum().backward()
    assert image.grad is not None
    assert bool(image.grad.isfinite().all())
