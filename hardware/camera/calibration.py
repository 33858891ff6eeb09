"""How a camera maps points to pixels, from the YAML file that ROS' camera_calibration writes.

    image_width: 640                  distortion_model: plumb_bob
    image_height: 480                 distortion_coefficients: {rows: 1, cols: 5, data: [...]}
    camera_matrix: {rows: 3, cols: 3, data: [...]}

rectification_matrix and projection_matrix may be left out: of one camera they are the identity and the camera
matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.messages import CameraInfo
from hardware.plain_values import keys, number, rows, text, whole
from robo_rl.core.errors import ConfigError

_NEEDED = ("image_width", "image_height", "camera_matrix", "distortion_coefficients")
_COEFFICIENTS = {"plumb_bob": 5, "rational_polynomial": 8, "equidistant": 4}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibration of a camera, for pictures of one size."""

    width_px: int
    height_px: int
    model: str
    distortion: Float[ndarray, " d"]
    matrix: Float[ndarray, "3 3"]  # K: focal lengths and principal point [pixels]
    rectification: Float[ndarray, "3 3"]  # R
    projection: Float[ndarray, "3 4"]  # P

    def info(self, stamp_s: float, frame: str) -> CameraInfo:
        """The message beside a picture of that time and frame."""
        return CameraInfo(
            stamp_s,
            self.width_px,
            self.height_px,
            self.model,
            self.distortion,
            self.matrix,
            self.rectification,
            self.projection,
            frame,
        )


def load_calibration(file: str) -> Calibration:
    """Raises ConfigError, naming the key."""
    import yaml

    try:
        data = yaml.safe_load(Path(file).read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as a camera's calibration ({error}).") from error
    body = keys(data, file, needed=_NEEDED)
    model = text(body.get("distortion_model", "plumb_bob"), f"{file}: distortion_model")
    distortion = _numbers(body, "distortion_coefficients", file)
    if model not in _COEFFICIENTS or distortion.size != _COEFFICIENTS[model]:
        wanted = ", ".join(f"{name} ({count})" for name, count in _COEFFICIENTS.items())
        raise ConfigError(
            f"{file} has {distortion.size} coefficients of '{model}'; expected one of: {wanted}."
        )
    matrix = _matrix(body, "camera_matrix", file, (3, 3))
    size = [whole(body[key], f"{file}: {key}") for key in ("image_width", "image_height")]
    if min(size) < 1 or matrix[0, 0] <= 0.0 or matrix[1, 1] <= 0.0:
        raise ConfigError(
            f"{file} needs a size and focal lengths above 0, found {size} and {np.diag(matrix)[:2]}."
        )
    rectification = np.eye(3)
    if "rectification_matrix" in body:
        rectification = _matrix(body, "rectification_matrix", file, (3, 3))
    projection = np.hstack([matrix, np.zeros((3, 1))])
    if "projection_matrix" in body:
        projection = _matrix(body, "projection_matrix", file, (3, 4))
    return Calibration(size[0], size[1], model, distortion, matrix, rectification, projection)


def _numbers(body: Mapping[str, Any], key: str, file: str) -> Float[ndarray, " n"]:
    where = f"{file}: {key}"
    values = rows(keys(body[key], where, needed=("data",))["data"], f"{where}: data")
    found = np.array([number(value, f"{where}: data") for value in values], dtype=np.float64)
    if not np.isfinite(found).all():
        raise ConfigError(f"{where} holds numbers that are not finite.")
    return found


def _matrix(body: Mapping[str, Any], key: str, file: str, shape: tuple[int, int]) -> ndarray:
    values = _numbers(body, key, file)
    if values.size != shape[0] * shape[1]:
        raise ConfigError(f"{file}: {key} holds {values.size} numbers, expected {shape[0]} x {shape[1]}.")
    return values.reshape(shape)
