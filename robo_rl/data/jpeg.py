"""JPEG encoding and decoding of RGB images. OpenCV is imported at the first use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError, MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import UInt8


def encode(image: UInt8[ndarray, "h w 3"], quality: int) -> UInt8[ndarray, " bytes"]:
    """JPEG file content of an RGB image."""
    cv2 = load_cv2()
    ok, data = cv2.imencode(
        ".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality]
    )
    if not ok:
        raise DataError(f"OpenCV could not encode an image of shape {image.shape} as JPEG.")
    return np.ascontiguousarray(data).reshape(-1)


def decode(data: UInt8[ndarray, " bytes"], out: UInt8[ndarray, "h w 3"]) -> None:
    """Decode a JPEG into `out` (RGB, C-contiguous). Raises DataError for another size, or if it is no
    JPEG.
    """
    cv2 = load_cv2()
    image = cv2.imdecode(data, cv2.IMREAD_COLOR)
    if image is None or image.shape != out.shape:
        found = "not a JPEG image" if image is None else f"a JPEG image of shape {image.shape}"
        raise DataError(
            f"{len(data)} bytes are {found}, an image of shape {out.shape} was expected. "
            "Run `robo-rl data validate` on the dataset."
        )
    # directly into `out`; in place it would make a second copy
    cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=out)


def load_cv2() -> Any:
    """OpenCV. Raises MissingDependencyError without it."""
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Pictures need the package 'opencv-python-headless'. Run: {pip_install('train')}"
        ) from error
    return cv2
