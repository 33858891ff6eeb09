"""Encoders by kind of observation."""

from __future__ import annotations

import pytest
import torch

from policies.observation import ObsEncoder
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import SEGMENTS, ArraySpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.image_encoder import ImageEncoderConfig


def _encoder(key: str) -> ObsEncoder:
    spec = {"state": ArraySpec((5,)), key: ArraySpec((16, 16, 1), "uint8")}
    return ObsEncoder(spec, 2, Normalizer({"state": (5,)}), ImageEncoderConfig(widths=[8, 8], features=6))


def test_classes_of_pixels_are_encoded() -> None:
    """Two steps of 5 numbers and 6 features; another class changes the features, not the state."""
    encoder = _encoder("segmentation.view")
    obs = {
        "state": torch.zeros(1, 2, 5),
        "segmentation.view": torch.zeros(1, 2, 16, 16, 1, dtype=torch.uint8),
    }
    before = encoder(obs)
    obs["segmentation.view"][:, :, 4:12, 4:12] = SEGMENTS.index("robot")
    assert before.shape == (1, 2 * (5 + 6))
    assert torch.equal(encoder(obs)[:, :10], before[:, :10])
    assert not torch.allclose(encoder(obs)[:, 10:], before[:, 10:])


def test_grey_pictures_are_no_classes() -> None:
    with pytest.raises(ConfigError, match="height, width, 3"):
        _encoder("image.view")


def test_observations_of_every_type_are_encoded() -> None:
    """An environment or robot may give float64 and flags, and depths and points in float64."""
    spec = {
        "state": ArraySpec((5,), "float64"),
        "touching": ArraySpec((2,), "bool"),
        "buttons": ArraySpec((3,), "uint8"),
        "depth.top": ArraySpec((16, 16), "float64"),
        "points.top": ArraySpec((4, 3), "float64"),
    }
    obs = {key: torch.ones(1, 2, *array.shape, dtype=array.torch_dtype) for key, array in spec.items()}
    normalizer = Normalizer({"state": (5,), "touching": (2,), "buttons": (3,)})
    encoder = ObsEncoder(spec, 2, normalizer, ImageEncoderConfig(widths=[8, 8], features=6))
    features = encoder(obs)
    assert features.dtype == torch.float32
    assert features[:, :20].tolist() == [[1.0] * 20]
