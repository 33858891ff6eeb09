"""The T of Push-T: a bar of 4 by 1 and a stem of 1 by 3 units. Its outline and the area it covers of a
target.

All in the plane, in m. The T's frame is at the middle of its area, with the bar towards +y.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Float

UNIT_M, HIGH_M = 0.03, 0.03
_TOP = 9.5 / 7.0  # units from the middle of the area to the bar's far side
_INWARD_M = 1e-6


def pieces_m() -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Rectangles of the bar and the stem, each (y of the middle, half-width, half-height) [m]."""
    bar = (UNIT_M * (_TOP - 0.5), 2.0 * UNIT_M, 0.5 * UNIT_M)
    stem = (UNIT_M * (_TOP - 2.5), 0.5 * UNIT_M, 1.5 * UNIT_M)
    return bar, stem


def share_covered(place_m: Float[Tensor, "n 2"], turn_rad: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Share in [0, 1] of the target's area that a T at `place_m`, turned by `turn_rad`, covers.

    Sum over pairs of rectangles by Green's theorem: half the integral of x dy - y dx along the parts of
    either outline inside the other. Exact up to rounding, except that the target's rectangles are smaller by
    1e-6 m on every side (less than 1e-4 of the area), so that edges never coincide.
    """
    cos, sin, n = turn_rad.cos()[:, None], turn_rad.sin()[:, None], len(place_m)
    area = place_m.new_zeros(n)
    for mine in pieces_m():
        corners = _turned(_corners(place_m, mine).expand(n, 4, 2), cos, sin) + place_m[:, None]
        for y, half_x, half_y in pieces_m():
            target = (y, half_x - _INWARD_M, half_y - _INWARD_M)
            theirs = _corners(place_m, target).expand(n, 4, 2)
            seen = _turned(theirs - place_m[:, None], cos, -sin)  # in the T's frame
            area = area + _along(corners, corners, target) + _along(theirs, seen, mine)
    return area / (7.0 * UNIT_M**2)


def _along(
    corners: Float[Tensor, "n 4 2"], seen: Float[Tensor, "n 4 2"], box: tuple[float, float, float]
) -> Float[Tensor, " n"]:
    """Green's integral along the part of an outline inside a box; seen: the corners in the box's axes."""
    middle_y, half_x, half_y = box
    half = seen.new_tensor([half_x, half_y])
    offset, way = seen - seen.new_tensor([0.0, middle_y]), seen.roll(-1, 1) - seen
    safe = torch.where(way.abs() < 1e-12, 1e-12, way)  # edges parallel to a side never cross it
    one, two = (-half - offset) / safe, (half - offset) / safe
    enter = torch.minimum(one, two).amax(-1).clamp_min(0.0)
    leave = torch.maximum(one, two).amin(-1).clamp_max(1.0)
    a, b = corners, corners.roll(-1, 1)
    # The integral from a + t0 (b - a) to a + t1 (b - a) is (t1 - t0) (a x b) / 2.
    return 0.5 * ((leave - enter).clamp_min(0.0) * (a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0])).sum(1)


def _corners(like: Tensor, box: tuple[float, float, float]) -> Float[Tensor, "1 4 2"]:
    """Corners of a rectangle [m], counter-clockwise."""
    y, half_x, half_y = box
    return like.new_tensor(
        [[[half_x, y - half_y], [half_x, y + half_y], [-half_x, y + half_y], [-half_x, y - half_y]]]
    )


def _turned(points: Float[Tensor, "n p 2"], cos: Float[Tensor, "n 1"], sin: Float[Tensor, "n 1"]) -> Tensor:
    x, y = points[..., 0], points[..., 1]
    return torch.stack([cos * x - sin * y, sin * x + cos * y], -1)


def gap_m(points: Float[Tensor, "n p 2"]) -> Float[Tensor, "n p"]:
    """Signed distance [m] of points in the T's frame from its outline, negative inside."""
    gaps = []
    for y, half_x, half_y in pieces_m():
        beyond = (points - points.new_tensor([0.0, y])).abs() - points.new_tensor([half_x, half_y])
        gaps.append(beyond.clamp_min(0.0).norm(dim=-1) + beyond.amax(-1).clamp_max(0.0))
    return torch.minimum(*gaps)
