"""Removal of a hand from the pictures of one episode, with OpenCV. n = pictures of h by w pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Bool, UInt8
from robo_rl.data.jpeg import load_cv2

_MOST = 64  # pictures of an episode that the median is taken over
_RADIUS_PX = 3.0  # of Telea's method: pixels around a filled one that it is computed from


def colour_masks(
    pictures: UInt8[ndarray, "n h w 3"], low: Sequence[int], high: Sequence[int]
) -> Bool[ndarray, "n h w"]:
    """Pixels between two colours in OpenCV's HSV: hue 0 to 179, saturation and value 0 to 255."""
    cv2 = load_cv2()
    found = [cv2.inRange(cv2.cvtColor(each, cv2.COLOR_RGB2HSV), tuple(low), tuple(high)) for each in pictures]
    masks: Bool[ndarray, "n h w"] = np.stack(found) > 0
    return masks


def grown(masks: Bool[ndarray, "n h w"], px: int) -> Bool[ndarray, "n h w"]:
    """Masks with a rim of `px` pixels."""
    if px == 0:
        return masks
    cv2 = load_cv2()
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * px + 1, 2 * px + 1))
    wider: Bool[ndarray, "n h w"] = np.stack([cv2.dilate(each.astype(np.uint8), disc) for each in masks]) > 0
    return wider


def without_hand(
    pictures: UInt8[ndarray, "n h w 3"], masks: Bool[ndarray, "n h w"], fill: str
) -> UInt8[ndarray, "n h w 3"]:
    """Copies of the pictures in which the masked pixels, and no others, are replaced.

    fill: "median", the median of the same pixel where it is not masked, for a camera that stands still; or
    "telea", Telea's inpainting (2004) from the pixels around the mask, which also fills what the median has
    never seen.
    """
    cv2, filled, left = load_cv2(), pictures.copy(), masks
    if fill == "median":
        median, hidden = _background(pictures, masks)
        filled[masks] = np.broadcast_to(median, pictures.shape)[masks]
        left = masks & hidden
    for picture, mask in zip(filled, left, strict=True):
        if mask.any():
            picture[mask] = cv2.inpaint(picture, mask.astype(np.uint8), _RADIUS_PX, cv2.INPAINT_TELEA)[mask]
    return filled


def _background(
    pictures: UInt8[ndarray, "n h w 3"], masks: Bool[ndarray, "n h w"]
) -> tuple[UInt8[ndarray, "h w 3"], Bool[ndarray, "h w"]]:
    """Median of the unmasked values of each pixel, and the pixels that are masked in every picture."""
    rows = np.unique(np.linspace(0, len(pictures) - 1, _MOST).astype(int))
    values = np.where(masks[rows][..., None], np.uint16(256), pictures[rows])
    values.sort(axis=0)  # masked ones are last
    seen = (~masks[rows]).sum(0)
    middle = np.maximum(seen - 1, 0) // 2
    median = np.take_along_axis(values, middle[None, ..., None], axis=0)[0]
    return median.astype(np.uint8), seen == 0
