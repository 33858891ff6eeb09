"""Pictures by PyBullet's software renderer: colour, depth and segmentation. Needs no display and no GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, Int, UInt8
from sim.engines.bullet.body import hull
from sim.engines.quad.craft import Craft

NEAR_M, FAR_M = 0.01, 60.0


class Picture(NamedTuple):
    """Picture of a camera."""

    rgb: UInt8[ndarray, "h w 3"]
    depth_m: Float[ndarray, "h w"]  # along the camera's axis; FAR_M where nothing is
    segmentation: Int[ndarray, "h w"]


def onboard_view(
    craft: Craft, position_m: Float[ndarray, " 3"], turn: Float[ndarray, "3 3"]
) -> tuple[ndarray, ndarray, ndarray]:
    """(eye, target, up) of a camera at the front of the hull, so that no rotor is in the way."""
    radius_m, _ = hull(craft)
    eye = position_m + turn @ np.array([1.05 * radius_m, 0.0, 0.0])
    return eye, eye + turn[:, 0], turn[:, 2]


def look_from(
    p: Any,
    client: int,
    eye_m: ndarray,
    target_m: ndarray,
    up: ndarray,
    width: int,
    height: int,
    fov_deg: float,
) -> Picture:
    """Picture from a place in the world; `fov_deg` is the vertical angle of view."""
    if not (8 <= width <= 4096 and 8 <= height <= 4096):
        raise ConfigError(
            f"A picture of {width} x {height} pixels cannot be made: both sides must be in 8 ... 4096."
        )
    view = p.computeViewMatrix(eye_m.tolist(), target_m.tolist(), up.tolist())
    lens = p.computeProjectionMatrixFOV(fov_deg, width / height, NEAR_M, FAR_M)
    _, _, rgba, depth, names = p.getCameraImage(
        width, height, view, lens, shadow=1, lightDirection=[4.0, 3.0, 12.0], renderer=p.ER_TINY_RENDERER,
        physicsClientId=client,
    )  # fmt: skip
    rgb = np.asarray(rgba, np.uint8).reshape(height, width, 4)[..., :3]
    share = np.asarray(depth, np.float64).reshape(height, width)
    depth_m = FAR_M * NEAR_M / (FAR_M - (FAR_M - NEAR_M) * share)  # OpenGL's depth buffer, undone
    return Picture(np.ascontiguousarray(rgb), depth_m, np.asarray(names, np.int64).reshape(height, width))
