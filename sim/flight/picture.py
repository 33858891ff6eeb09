"""Schematic picture of one drone from the side (x right, z up) and from above (x right, y up)."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float, UInt8

SIDE_PX = 240
_PAPER, _GRID, _BODY, _FRONT, _GOAL = (
    (250, 250, 250),
    (225, 225, 228),
    (24, 24, 27),
    (213, 94, 0),
    (0, 158, 115),
)
_DRAWN = 0.15  # drawn size as a share of half the picture: larger than the craft, which is centimetres wide


def picture(
    state: Float[ndarray, " 17"],
    box_m: float,
    goal_m: Float[ndarray, " 3"] | None = None,
    middle_m: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> UInt8[ndarray, "240 480 3"]:
    """RGB picture of a state (17,). Front arms are orange, the goal is green, by default in the middle.

    The frame extends `box_m` from `middle_m`, all in m in the world.
    """
    image = np.full((SIDE_PX, 2 * SIDE_PX, 3), _PAPER, np.uint8)
    image[:, SIDE_PX - 1 : SIDE_PX + 1] = _GRID
    turn = _matrix(state[3:7])
    arms = np.array([[1, -1, 0], [-1, -1, 0], [-1, 1, 0], [1, 1, 0]]) * _DRAWN * box_m
    here = state[0:3] - middle_m
    goal = np.zeros(3) if goal_m is None else goal_m - middle_m
    tips = here + arms @ turn.T
    for panel, (across, up) in enumerate(((0, 2), (0, 1))):
        _dot(image, panel, goal[across], goal[up], box_m, 3, _GOAL)
        for tip, colour in zip(tips, (_FRONT, _BODY, _BODY, _FRONT), strict=True):
            for share in np.linspace(0.0, 1.0, 24):
                at = here + share * (tip - here)
                _dot(image, panel, at[across], at[up], box_m, 1, colour)
            _dot(image, panel, tip[across], tip[up], box_m, 3, colour)
    return image


def _dot(
    image: ndarray, panel: int, x_m: float, y_m: float, box_m: float, radius_px: int, colour: tuple[int, ...]
) -> None:
    column = round((x_m / box_m + 1.0) * 0.5 * (SIDE_PX - 1))
    row = round((1.0 - y_m / box_m) * 0.5 * (SIDE_PX - 1))
    if not (0 <= column < SIDE_PX and 0 <= row < SIDE_PX):
        return
    left = panel * SIDE_PX
    rows = slice(max(0, row - radius_px), row + radius_px + 1)
    columns = slice(left + max(0, column - radius_px), left + min(SIDE_PX, column + radius_px + 1))
    image[rows, columns] = colour


def _matrix(quat: Float[ndarray, " 4"]) -> Float[ndarray, "3 3"]:
    w, x, y, z = quat
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip
