"""Intrinsics of a camera, from the YAML file that the ROS package camera_calibration writes.

    image_width: 640                  distortion_model: plumb_bob
    image_height: 480                 distortion_coefficients: {rows: 1, cols: 5, data: [...]}
    camera_matrix: {rows: 3, cols: 3, data: [...]}

rectification_matrix and projection_matrix are optional. Their defaults, for a single camera, are the identity
and the camera matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.messages import CameraInfo
from hardware.plain_values import integer, mapping, number, sequence, text
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float

_NEEDED = ("image_width", "image_height", "camera_matrix", "distortion_coefficients")
_COEFFICIENTS = {"plumb_bob": 5, "rational_polynomial": 8, "equidistant": 4}


@dataclass(frozen=True, slots=True)
class Calibration:
    """Intrinsics of a camera, for pictures of one size."""

    width_px: int
    height_px: int
    model: str  # distortion model: plumb_bob, rational_polynomial or equidistant
    distortion: Float[ndarray, " d"]  # d = 5, 8 or 4 coefficients of that model
    matrix: Float[ndarray, "3 3"]  # K: focal lengths and principal point [pixels]
    rectification: Float[ndarray, "3 3"]  # R
    projection: Float[ndarray, "3 4"]  # P

    def info(self, stamp_s: float, frame: str) -> CameraInfo:
        """The message to publish with a picture of this stamp and frame."""
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
    """Intrinsics from a YAML file. Raises ConfigError that names the file and the key."""
    import yaml

    try:
        data = yaml.safe_load(Path(file).read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as a camera's calibration ({error}).") from error
    body = mapping(data, file, needed=_NEEDED)
    model = text(body.get("distortion_model", "plumb_bob"), f"{file}: distortion_model")
    distortion = _numbers(body, "distortion_coefficients", file)
    if model not in _COEFFICIENTS or distortion.size != _COEFFICIENTS[model]:
        wanted = ", ".join(f"{name} ({count})" for name, count in _COEFFICIENTS.items())
        raise ConfigError(
            f"{file} has {distortion.size} coefficients for the distortion model '{model}'; expected one of: "
            f"{wanted}."
        )
    matrix = _matrix(body, "camera_matrix", file, (3, 3))
    size = [integer(body[key], f"{file}: {key}") for key in ("image_width", "image_height")]
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
    values = sequence(mapping(body[key], where, needed=("data",))["data"], f"{where}: data")
    found = np.array([number(value, f"{where}: data") for value in values], dtype=np.float64)
    if not np.isfinite(found).all():
        raise ConfigError(f"{where} holds numbers that are not finite.")
    return found


def _matrix(body: Mapping[str, Any], key: str, file: str, shape: tuple[int, int]) -> ndarray:
    values = _numbers(body, key, file)
    if values.size != shape[0] * shape[1]:
        raise ConfigError(f"{file}: {key} holds {values.size} numbers, expected {shape[0]} x {shape[1]}.")
    return values.reshape(shape)
