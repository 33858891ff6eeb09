"""PNG images, which keep every pixel, and images of unknown type from foreign files."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped, UInt8
from robo_rl.data.jpeg import load_cv2

_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")  # PNG, JPEG: other decoders of OpenCV are not used


def encode_png(image: UInt8[ndarray, "h w c"]) -> UInt8[ndarray, " bytes"]:
    """PNG file content of an RGB image, or of one with a single channel."""
    cv2 = load_cv2()
    pixels = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if image.shape[-1] == 3 else image
    ok, data = cv2.imencode(".png", np.ascontiguousarray(pixels), [cv2.IMWRITE_PNG_COMPRESSION, 1])
    if not ok:
        raise DataError(f"OpenCV could not encode an image of shape {image.shape} as PNG.")
    return np.ascontiguousarray(data).reshape(-1)


def decode_picture(data: bytes, shape: tuple[int, ...], where: str) -> Shaped[ndarray, "h w c"]:
    """RGB image (or one channel) of a PNG or JPEG file. Raises DataError for another shape or format."""
    cv2 = load_cv2()
    image = None
    if data.startswith(_MAGIC):
        flag = cv2.IMREAD_COLOR if shape[-1] == 3 else cv2.IMREAD_GRAYSCALE
        image = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flag)
    if image is None or image.shape[:2] != tuple(shape[:2]):
        found = "no PNG or JPEG image" if image is None else f"an image of shape {image.shape}"
        raise DataError(f"{where}: found {found}, shape {list(shape)} was expected. Write the dataset again.")
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB) if shape[-1] == 3 else image[..., None])
