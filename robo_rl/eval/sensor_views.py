"""Images of sensor data for videos: camera images, depths and classes by colour, point clouds from above."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from numpy import ndarray

from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float, UInt8

Frame = UInt8[ndarray, "h w 3"]  # RGB

# percentile at which depths are clipped, so that a distant background leaves colour range to the rest
_DEEP = 95
_MOST = 4  # images per column
# colours of SEGMENTS
_CLASSES = np.array([[40, 40, 46], [130, 130, 140], [235, 120, 40], [60, 140, 230]], np.uint8)
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def observation_images(obs: Obs, lane: int = 0) -> dict[str, Frame]:
    """Observation key -> image, for every observation that can be shown as one."""
    drawn = {
        "image": _as_it_is,
        "depth": _depth_colours,
        "points": _from_above,
        "segmentation": _class_colours,
    }
    return {
        key: drawn[kind](value[lane].cpu().numpy())
        for key, value in obs.items()
        if (kind := key.partition(".")[0]) in drawn
        and value.dim() == (4 if kind in ("image", "segmentation") else 3)
    }


def add_columns(frame: Frame, seen: Mapping[str, Frame]) -> Frame:
    """The frame with these images, titled, in columns at its right."""
    if not seen:
        return frame
    names = list(seen)
    rows = min(max(2, len(names)), _MOST)
    side = frame.shape[0] // rows // 2 * 2
    columns = [_column(names[i : i + rows], seen, side, frame.shape[0]) for i in range(0, len(names), rows)]
    return np.concatenate([frame, *columns], axis=1)


def _column(names: Sequence[str], seen: Mapping[str, Frame], side: int, height: int) -> Frame:
    column = np.zeros((height, side, 3), np.uint8)
    for i, name in enumerate(names):
        tile = column[i * side : (i + 1) * side]
        tile[:] = cv2.resize(seen[name], (side, side), interpolation=cv2.INTER_NEAREST)
        for ink, thickness in (((0, 0, 0), 3), ((255, 255, 255), 1)):  # readable on any background
            cv2.putText(tile, name, (4, 13), _FONT, 0.38, ink, thickness, cv2.LINE_AA)
    return column


def _as_it_is(picture: Frame) -> Frame:
    return picture


def _class_colours(classes: UInt8[ndarray, "h w 1"]) -> Frame:
    frame: Frame = _CLASSES[np.minimum(classes[..., 0], len(_CLASSES) - 1)]
    return frame


def _depth_colours(depth_m: Float[ndarray, "h w"]) -> Frame:
    """Depth by colour: near is warm, far is cold, scaled to the depths of this image."""
    first, last = float(depth_m.min()), float(np.percentile(depth_m, _DEEP))
    far = np.clip((depth_m - first) / max(last - first, 1e-6), 0.0, 1.0)
    near = np.round(255.0 * (1.0 - far)).astype(np.uint8)
    return np.asarray(cv2.cvtColor(cv2.applyColorMap(near, cv2.COLORMAP_TURBO), cv2.COLOR_BGR2RGB), np.uint8)


def _from_above(points_m: Float[ndarray, "p 3"], side: int = 160) -> Frame:
    """Point cloud from above: x to the right, y up, scaled to its extent; higher points are warmer."""
    ground = np.full((side, side, 3), 24, np.uint8)
    low, high = points_m.min(0), points_m.max(0)
    extent = max(float((high - low)[:2].max()), 1e-6)
    place = (points_m[:, :2] - 0.5 * (low + high)[:2]) / extent * (0.9 * side) + 0.5 * side
    height = (points_m[:, 2] - low[2]) / max(float(high[2] - low[2]), 1e-6)
    colour = cv2.applyColorMap(np.round(255.0 * height).astype(np.uint8)[:, None], cv2.COLORMAP_TURBO)[
        :, 0, ::-1
    ]
    for (x, y), ink in zip(place.astype(int), colour, strict=True):
        cv2.circle(ground, (int(x), side - 1 - int(y)), 1, [int(part) for part in ink], -1)
    return ground
