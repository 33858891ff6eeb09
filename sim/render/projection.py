"""Position of a point of the scene in a picture of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.shapes import Float

NEAREST_M = 1e-3  # least distance along the camera's axis; points behind the camera are put there
OUTSIDE = 1.5  # largest coordinate of a point that the picture does not show


def in_picture(
    place_m: Float[NDArray[np.floating], "3"],
    camera_m: Float[NDArray[np.floating], "3"],
    rotation: Float[NDArray[np.floating], "3 3"],
    fovy_rad: float,
    aspect: float = 1.0,
) -> Float[NDArray[np.floating], "2"]:
    """x to the right and y down, -1 and 1 at the picture's edges, of a point [m; world frame].

    rotation: camera -> world, with x to the right, y up, and the camera looking along -z, as in MuJoCo and
    OpenGL. aspect: width over height. Pinhole camera, with the point X, Y, Z in its frame:
    x = X / (-Z tan(fovy / 2) aspect), y = -Y / (-Z tan(fovy / 2)).
    """
    right_m, up_m, back_m = rotation.T @ (place_m - camera_m)
    half_m = max(NEAREST_M, -float(back_m)) * math.tan(0.5 * fovy_rad)
    point = np.array([right_m / (aspect * half_m), -up_m / half_m], np.float32)
    return point.clip(-OUTSIDE, OUTSIDE)


def in_camera(
    model: Any, data: Any, camera: str, place_m: Float[NDArray[np.floating], "3"]
) -> Float[NDArray[np.floating], "2"]:
    """`in_picture` for a square picture through a camera of MuJoCo, from the last kinematics."""
    row = model.camera(camera).id
    rotation = data.cam_xmat[row].reshape(3, 3)
    return in_picture(place_m, data.cam_xpos[row], rotation, math.radians(float(model.cam_fovy[row])))
