"""Scaling of camera pictures to the size in a policy's observation: the same in training and on the robot."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import MissingDependencyError
from robo_rl.core.packages import pip_install

_SLACK = 0.02  # by which width to height may differ: sizes are whole pixels


def scalable(found: tuple[int, int], wanted: tuple[int, int]) -> bool:
    """True when pictures of this (height, width) can be scaled without cropping, stretching or enlarging."""
    if found[0] < max(1, wanted[0]) or found[1] < wanted[1]:
        return False
    return abs((found[1] * wanted[0]) / (found[0] * wanted[1]) - 1.0) <= _SLACK


def scaled(pixels: ndarray, wanted: tuple[int, int]) -> ndarray:
    """Scale (h, w, ...) to (*wanted, ...).

    Colours are averaged over the pixels that become one. Of depths [m] one pixel is taken: the mean of a near
    and a far surface is a place where nothing is.
    """
    if pixels.shape[:2] == wanted:
        return pixels
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Scaling pictures needs OpenCV, which is not installed. Run: {pip_install('robot')}"
        ) from error
    how = cv2.INTER_AREA if pixels.dtype == np.uint8 else cv2.INTER_NEAREST
    found: ndarray = cv2.resize(pixels, (wanted[1], wanted[0]), interpolation=how)
    return found
