"""Removal of a hand from pictures: what is masked is filled, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robo_rl.data.overlay.picture import colour_masks, grown, without_hand

RNG = np.random.default_rng(0)
BACKGROUND = RNG.integers(0, 256, (12, 16, 3), np.uint8)


def moving_hand(frames: int = 5) -> tuple[NDArray[Any], NDArray[Any]]:
    """Pictures of one background with a square that moves to the right, and its masks."""
    pictures = np.repeat(BACKGROUND[None], frames, 0)
    masks = np.zeros(pictures.shape[:3], bool)
    for i in range(frames):
        masks[i, 4:8, 3 * i : 3 * i + 3] = True
    pictures[masks] = (222, 158, 122)
    return pictures, masks


@pytest.mark.parametrize("fill", ["median", "telea"])
def test_pixels_outside_the_mask_are_bit_identical(fill: str) -> None:
    pictures, masks = moving_hand()
    before = pictures.copy()
    filled = without_hand(pictures, masks, fill)
    assert (filled[~masks] == pictures[~masks]).all()
    assert (pictures == before).all()
    assert (filled[masks] != pictures[masks]).any(-1).mean() > 0.9


def test_the_median_is_the_background_behind_a_moving_hand() -> None:
    pictures, masks = moving_hand()
    assert (without_hand(pictures, masks, "median") == BACKGROUND).all()


def test_pixels_that_are_always_masked_are_filled_from_their_surroundings() -> None:
    """A hand that rests on a grey table: the table's grey, not black."""
    pictures = np.full((3, 12, 12, 3), 128, np.uint8)
    masks = np.zeros((3, 12, 12), bool)
    masks[:, 4:7, 4:7] = True
    pictures[masks] = 255
    assert (without_hand(pictures, masks, "median") == 128).all()


def test_a_colour_range_finds_skin_and_a_rim_is_added() -> None:
    pictures = np.full((1, 9, 9, 3), (90, 120, 130), np.uint8)
    pictures[0, 4, 4] = (222, 158, 122)
    masks = colour_masks(pictures, (0, 40, 60), (25, 190, 255))
    assert np.argwhere(masks).tolist() == [[0, 4, 4]]
    assert grown(masks, 0).sum() == 1
    assert grown(masks, 1).sum() == 5  # a disc of radius 1
