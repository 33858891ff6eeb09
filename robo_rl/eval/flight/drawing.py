"""3-D drawing with OpenCV: a pinhole camera, anti-aliased lines, translucent areas and text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from numpy import ndarray

from robo_rl.core.shapes import Float, UInt8
from robo_rl.eval.video import Frame

Colour = tuple[float, float, float]  # red, green, blue, 0 ... 255
WHITE: Colour = (255.0, 255.0, 255.0)
_SMOOTH = 2  # supersampling factor, against flicker of thin moving lines
_BITS = 4  # fractional bits of OpenCV's pixel coordinates (1/16 pixel)


@dataclass(frozen=True, slots=True)
class PinholeCamera:
    """Pinhole camera: pixel = centre + focal_px (right, -up) / forward, for a point relative to `eye_m`."""

    eye_m: Float[ndarray, " 3"]  # world
    axes: Float[ndarray, "3 3"]  # rows: right, up, forward; world
    focal_px: float
    size: tuple[int, int]  # width, height

    def project(
        self, points_m: Float[ndarray, "... 3"]
    ) -> tuple[Float[ndarray, "... 2"], Float[ndarray, "..."]]:
        """Pixels (x right, y down, from the top left corner) and depths along the view [m]."""
        seen = (points_m - self.eye_m) @ self.axes.T
        depth = np.asarray(np.maximum(seen[..., 2], 1e-3))
        right, up = seen[..., 0] / depth, seen[..., 1] / depth
        width, height = self.size
        return np.stack([width / 2 + self.focal_px * right, height / 2 - self.focal_px * up], axis=-1), depth


def fit_camera(
    points_m: Float[ndarray, "k 3"],
    size: tuple[int, int],
    azimuth_deg: float,
    elevation_deg: float,
    fill: tuple[float, float] = (0.9, 0.8),
) -> PinholeCamera:
    """Nearest camera in this direction whose image holds all points within `fill` of its width and height.

    The camera points at the middle of the points. With d the distance to the middle, a point is inside if f
    |right| / (d + forward) is at most half the width, which is linear in d. The result is the largest d over
    all points.
    """
    middle = (points_m.min(0) + points_m.max(0)) / 2.0
    azimuth, elevation = np.radians(azimuth_deg), np.radians(elevation_deg)
    back = np.array(
        [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)]
    )
    right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
    axes = np.stack([right, np.cross(back, right), -back])
    focal_px = 1.5 * size[0]  # 37 degrees across, little distortion at the edges
    seen = (points_m - middle) @ axes.T
    room = np.array(size) / 2.0 * np.array(fill)
    distance = (np.abs(seen[:, :2]) * focal_px / room).max(-1) - seen[:, 2]
    return PinholeCamera(middle + back * max(float(distance.max()), 1e-2), axes, focal_px, size)


def rotation(quat_wxyz: Float[ndarray, " 4"]) -> Float[ndarray, "3 3"]:
    """Rotation matrix, body -> world."""
    w, x, y, z = quat_wxyz
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


class Canvas:
    """Image under construction. Coordinates and widths are in pixels of the finished image."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._pixels = np.full((size[1] * _SMOOTH, size[0] * _SMOOTH, 3), 255, dtype=np.uint8)

    def copy(self) -> Canvas:
        twin = Canvas((2, 2))
        twin._pixels = self._pixels.copy()
        return twin

    def finished(self) -> Frame:
        height, width = self._pixels.shape[:2]
        return np.asarray(
            cv2.resize(self._pixels, (width // _SMOOTH, height // _SMOOTH), interpolation=cv2.INTER_AREA)
        )

    def line(
        self, points: Float[ndarray, "k 2"], colour: Colour, width_px: float, closed: bool = False
    ) -> None:
        if np.isfinite(points).all():
            thick = max(1, round(width_px * _SMOOTH))
            cv2.polylines(self._pixels, [_fixed(points)], closed, colour, thick, cv2.LINE_AA, _BITS)

    def area(self, points: Float[ndarray, "k 2"], colour: Colour, alpha: float) -> None:
        """Fill a convex outline with opacity `alpha`."""
        if not np.isfinite(points).all():
            return
        height, width = self._pixels.shape[:2]
        low = np.clip(np.floor(points.min(0) * _SMOOTH) - 2, 0, (width, height)).astype(int)
        high = np.clip(np.ceil(points.max(0) * _SMOOTH) + 3, 0, (width, height)).astype(int)
        if (high <= low).any():
            return
        below = self._pixels[low[1] : high[1], low[0] : high[0]]
        layer = below.copy()
        cv2.fillConvexPoly(layer, _fixed(points, low), colour, cv2.LINE_AA, _BITS)
        below[:] = cv2.addWeighted(layer, alpha, below, 1.0 - alpha, 0.0)


def _fixed(points: ndarray, origin: ndarray | int = 0) -> ndarray:
    """Coordinates in 1/16 canvas pixels. OpenCV has pixel centres at integers, this module pixel corners."""
    fixed: ndarray = (
        np.round((points * _SMOOTH - 0.5 - origin) * 2**_BITS).clip(-(2**28), 2**28).astype(np.int32)
    )
    return fixed


def rgb(colour: str, strength: float = 1.0) -> Colour:
    """Colour by name or hex; a strength below 1 blends it with white."""
    r, g, b = (255.0 * (1.0 - strength * (1.0 - part)) for part in to_rgb(colour))
    return r, g, b


def put_text(
    frame: Frame,
    text: str,
    at: tuple[int, int],
    px: float,
    colour: Colour,
    bold: bool = False,
    right: bool = False,
) -> None:
    """Write text on a finished image, clipped at its edges. at: start of the baseline, or its end with
    `right`.
    """
    mask, below = _letters(text, px, bold)
    x, y = at[0] - (mask.shape[1] if right else 0), at[1] + below - mask.shape[0]
    area = frame[max(y, 0) : y + mask.shape[0], max(x, 0) : x + mask.shape[1]]
    ink = mask[max(-y, 0) :, max(-x, 0) :][: area.shape[0], : area.shape[1], None] / 255.0
    area[:] = np.round(area * (1.0 - ink) + np.array(colour) * ink)


@lru_cache(maxsize=256)
def _letters(text: str, px: float, bold: bool) -> tuple[UInt8[ndarray, "h w"], int]:
    """(coverage, rows below the baseline). The font is matplotlib's, so images are equal on all machines."""
    font = FT2Font(findfont(FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")))
    font.set_size(px, 72)
    font.set_text(text)
    font.draw_glyphs_to_bitmap(antialiased=True)
    return np.array(font.get_image()), round(font.get_descent() / 64)
