"""JPEG encoding and decoding with OpenCV, which is imported at the first call."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError, MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import UInt8

MOST_PIXELS = 2**25  # largest compressed picture: 33 megapixels


def encoded(pixels: UInt8[ndarray, "h w 3"], quality: int) -> UInt8[ndarray, " n"]:
    """The bytes of a JPEG file.

    pixels: RGB. quality: 1 to 100. Raises MissingDependencyError without OpenCV.
    """
    cv2 = _opencv()
    _, data = cv2.imencode(
        ".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality]
    )
    found: UInt8[ndarray, " n"] = np.ascontiguousarray(data).reshape(-1)
    return found


def decoded(data: UInt8[ndarray, " n"]) -> UInt8[ndarray, "h w 3"]:
    """RGB pixels of a JPEG or PNG file. Raises DataError when the bytes are neither."""
    cv2 = _opencv()
    try:
        picture = cv2.imdecode(np.asarray(data, np.uint8), cv2.IMREAD_COLOR) if len(data) else None
    except cv2.error:  # more pixels than `MOST_PIXELS`
        picture = None
    if picture is None:
        raise DataError(
            f"A compressed picture of {len(data)} bytes is no JPEG or PNG that OpenCV can decode."
        )
    rgb: UInt8[ndarray, "h w 3"] = cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
    return rgb


def _opencv() -> Any:
    # Both are read when OpenCV is loaded. Its own lines about a broken picture would fill a robot's log: one
    # DataError says the same, and nodes report it with a count.
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MOST_PIXELS))
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Compressed pictures need OpenCV, which is not installed. Run: {pip_install('robot')}"
        ) from error
    return cv2
