"""Conventions of frames. Ours: world ENU (x east, y north, z up), body FLU (x forward, y left, z up),
quaternions wxyz from body to world, as ROS REP 103 and 105 have them except for the order of quaternions.
PX4's: NED and FRD.

Arrays are (..., 3) or (..., 4); NumPy alone, because a robot calls this.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

_HALF = float(np.sqrt(0.5))
_WORLD = np.array([0.0, _HALF, _HALF, 0.0])  # NED <-> ENU: half a turn about the line between north and east
_BODY = np.array([0.0, 1.0, 0.0, 0.0])  # FRD <-> FLU: half a turn about forward


def swap_world(vector: Float[ndarray, "... 3"]) -> Float[ndarray, "... 3"]:
    """NED to ENU or back: north and east change places, down becomes up."""
    x, y, z = np.moveaxis(np.asarray(vector), -1, 0)
    return np.stack([y, x, -z], axis=-1)


def swap_body(vector: Float[ndarray, "... 3"]) -> Float[ndarray, "... 3"]:
    """FRD to FLU or back, also for rates: right becomes left, down becomes up."""
    x, y, z = np.moveaxis(np.asarray(vector), -1, 0)
    return np.stack([x, -y, -z], axis=-1)


def swap_attitude(quat_wxyz: Float[ndarray, "... 4"]) -> Float[ndarray, "... 4"]:
    """FRD in NED to FLU in ENU or back: both sides turned by half a turn."""
    return quat_product(quat_product(_WORLD, quat_wxyz), _BODY)


def wxyz_of(quat_xyzw: Float[ndarray, "... 4"]) -> Float[ndarray, "... 4"]:
    """The order of ROS messages to ours."""
    return np.roll(np.asarray(quat_xyzw), 1, axis=-1)


def xyzw_of(quat_wxyz: Float[ndarray, "... 4"]) -> Float[ndarray, "... 4"]:
    """Our order to that of ROS messages."""
    return np.roll(np.asarray(quat_wxyz), -1, axis=-1)


def quat_product(a: Float[ndarray, "... 4"], b: Float[ndarray, "... 4"]) -> Float[ndarray, "... 4"]:
    """Hamilton's product: first b, then a."""
    aw, ax, ay, az = np.moveaxis(np.asarray(a), -1, 0)
    bw, bx, by, bz = np.moveaxis(np.asarray(b), -1, 0)
    return np.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        axis=-1,
    )


def rotation_of(quat_wxyz: Float[ndarray, "... 4"]) -> Float[ndarray, "... 3 3"]:
    """The matrix that turns body vectors into world vectors, of a unit quaternion."""
    w, x, y, z = np.moveaxis(np.asarray(quat_wxyz), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
