"""Normalisation of observations."""

from __future__ import annotations

import pytest
import torch

from robo_rl.core.errors import CheckpointError
from robo_rl.data.normalizer import Normalizer


def test_the_seen_range_becomes_minus_one_to_one() -> None:
    """[2, 6] maps to [-1, 1], and far outside is clamped."""
    normalizer = Normalizer.fit({"state": torch.tensor([[2.0], [6.0]])}, clip=5.0)
    out = normalizer.normalize({"state": torch.tensor([[2.0], [4.0], [6.0], [1000.0]])})["state"]
    assert out.flatten().tolist() == [-1.0, 0.0, 1.0, 5.0]


def test_constant_dimensions_are_only_centred() -> None:
    """Dividing by a range of nothing would amplify sensor noise without bound."""
    normalizer = Normalizer.fit({"state": torch.full((10, 1), 3.0)})
    assert normalizer.normalize({"state": torch.tensor([[3.01]])})["state"].item() == pytest.approx(0.01, abs=1e-5)


def test_other_keys_pass_and_missing_ones_are_named() -> None:
    """Images are none of its business; a missing state is an error, not zeros."""
    normalizer = Normalizer({"state": (1,)})
    image = torch.zeros(1, 2, 2, 3, dtype=torch.uint8)
    assert normalizer.normalize({"state": torch.zeros(1, 1), "image.top": image})["image.top"] is image
    with pytest.raises(CheckpointError, match="'state'"):
        normalizer.normalize({"image.top": image})
