"""Pictures from scattered poses, to train the image encoder before any flight."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.shapes import Float, UInt8
from sim.engines.bullet.floor_view import FloorCamera, FloorView, exposed

_NEAR = 0.5  # share of the poses that lie as close to the goal as a good flight
_NEAR_M, _NEAR_RAD, _HEADING_RAD = 0.1, 0.1, 0.3  # standard deviations there; of the heading, everywhere
_BATCH = 500


def scattered(
    eye: FloorCamera, floor_m: float, num: int, reach_m: float, tilt_rad: float, rng: np.random.Generator,
    drawn: Callable[[int], None] = lambda _: None,
) -> tuple[UInt8[Tensor, "b h w"], Float[Tensor, "b 3"], Float[Tensor, "b 5"]]:  # fmt: skip
    """Pictures, the up direction in body axes, and position [m] with cos and sin of the heading.

    Half of the poses lie near the goal, half anywhere within `reach_m` of it along each axis, tilted by up to
    `tilt_rad`; every picture has its own camera brightness. Unlike the pictures of a flight, they are
    independent.
    """
    position_m, turn = poses(num, reach_m, tilt_rad, rng)
    view, frames = FloorView(eye, floor_m), []
    try:
        for start in range(0, num, _BATCH):
            part = slice(start, min(start + _BATCH, num))
            size = part.stop - part.start
            seen = view.look(position_m[:, part], turn[:, :, part], np.ones(size, dtype=bool))
            frames.append(exposed(seen, 1.0 + eye.gain * rng.uniform(-1.0, 1.0, size), eye.noise, rng))
            drawn(size)
    finally:
        view.close()
    ahead = turn[:2, 0] / np.linalg.norm(turn[:2, 0], axis=0)
    pose = np.concatenate([position_m, ahead]).T
    return (
        torch.from_numpy(np.concatenate(frames)),
        torch.from_numpy(turn[2].T.astype(np.float32)),
        torch.from_numpy(pose.astype(np.float32)),
    )


def poses(
    num: int, reach_m: float, tilt_rad: float, rng: np.random.Generator
) -> tuple[Float[ndarray, "3 n"], Float[ndarray, "3 3 n"]]:
    """Positions and rotation matrices, body -> world: a heading, then a tilt about a horizontal axis."""
    near = rng.uniform(size=num) < _NEAR
    far_m = rng.uniform(-reach_m, reach_m, (3, num))
    position_m = np.where(near, rng.normal(0.0, _NEAR_M, (3, num)), far_m).clip(-reach_m, reach_m)
    tilt = np.where(near, np.abs(rng.normal(0.0, _NEAR_RAD, num)), rng.uniform(0.0, 1.0, num) * tilt_rad)
    towards, heading = rng.uniform(-np.pi, np.pi, num), rng.normal(0.0, _HEADING_RAD, num)
    zero, one = np.zeros(num), np.ones(num)
    c, s, x, y = np.cos(tilt), np.sin(tilt), np.cos(towards), np.sin(towards)
    # Rodrigues' formula about the axis (x, y, 0).
    lean = np.array([
        [c + x * x * (1 - c), x * y * (1 - c), y * s],
        [x * y * (1 - c), c + y * y * (1 - c), -x * s],
        [-y * s, x * s, c],
    ])  # fmt: skip
    ch, sh = np.cos(heading), np.sin(heading)
    about_z = np.array([[ch, -sh, zero], [sh, ch, zero], [zero, zero, one]])
    return position_m, np.einsum("ijn,jkn->ikn", about_z, lean)
