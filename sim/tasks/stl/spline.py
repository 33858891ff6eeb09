"""Uniform cubic B-splines: position, velocity and acceleration are linear in the control points."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from robo_rl.core.shapes import Float


class Basis(NamedTuple):
    """Matrices (t, c) from control points to position, velocity [1/s] and acceleration [1/s^2] at t times."""

    position: Tensor
    velocity: Tensor
    acceleration: Tensor


def spline_basis(duration_s: float, knots: int, times_s: Float[Tensor, " t"]) -> Basis:
    """Basis of `knots` pieces of equal length with knots + 3 control points; constant after the end.

    On a piece with local time u in [0, 1] the weights of its four points are (1 - u)^3 / 6,
    (3 u^3 - 6 u^2 + 4) / 6, (-3 u^3 + 3 u^2 + 3 u + 1) / 6 and u^3 / 6 (de Boor 1978).
    """
    length_s = duration_s / knots
    after = times_s > duration_s
    place = times_s.clamp(0.0, duration_s) / length_s
    piece = place.floor().clamp(max=knots - 1).long()
    u = place - piece
    value = (
        torch.stack([(1 - u) ** 3, 3 * u**3 - 6 * u**2 + 4, -3 * u**3 + 3 * u**2 + 3 * u + 1, u**3], 1) / 6
    )
    slope = torch.stack([-((1 - u) ** 2), 3 * u**2 - 4 * u, -3 * u**2 + 2 * u + 1, u**2], 1) / (2 * length_s)
    bend = torch.stack([1 - u, 3 * u - 2, 1 - 3 * u, u], 1) / length_s**2
    columns = piece[:, None] + torch.arange(4)
    empty = torch.zeros(len(times_s), knots + 3)
    still = (~after).to(u.dtype)[:, None]
    fill = (value, slope * still, bend * still)
    return Basis(*(empty.scatter(1, columns, values) for values in fill))


def apply(matrix: Float[Tensor, "t c"], points: Float[Tensor, "c 3 n"]) -> Float[Tensor, "t 3 n"]:
    """Values of the paths at the times of `matrix`."""
    return torch.einsum("tc,cdn->tdn", matrix, points)
