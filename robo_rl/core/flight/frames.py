"""Conversions between frames. Ours: world ENU (x east, y north, z up), body FLU (x forward, y left, z up),
quaternions wxyz from body to world: ROS REP 103 and 105 with another order of quaternions. PX4's: NED and
FRD.

Arrays are (..., 3) or (..., 4). The module needs NumPy only, because robots use it.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

_HALF = float(np.sqrt(0.5))
# NED <-> ENU: rotation by pi about the axis between north and east
_WORLD = np.array([0.0, _HALF, _HALF, 0.0])
_BODY = np.array([0.0, 1.0, 0.0, 0.0])  # FRD <-> FLU: rotation by pi about the forward axis


def swap_world(vector: Float[ndarray, "... 3"]) -> Float[ndarray, "... 3"]:
    """NED to ENU or back: north and east are swapped, down becomes up."""
    x, y, z = np.moveaxis(np.asarray(vector), -1, 0)
    return np.stack([y, x, -z], axis=-1)


def swap_body(vector: Float[ndarray, "... 3"]) -> Float[ndarray, "... 3"]:
    """FRD to FLU or back, also for rates: right becomes left, down becomes up."""
    x, y, z = np.moveaxis(np.asarray(vector), -1, 0)
    return np.stack([x, -y, -z], axis=-1)


def swap_attitude(quat_wxyz: Float[ndarray, "... 4"]) -> Float[ndarray, "... 4"]:
    """Attitude of FRD in NED to that of FLU in ENU, or back: both frames are rotated by pi."""
    return quat_product(quat_product(_WORLD, quat_wxyz), _BODY)


def wxyz_of(quat_xyzw: Float[ndarray, "... 4"]) -> Float[ndarray, "... 4"]:
    """Quaternion order of ROS messages to ours."""
    return np.roll(np.asarray(quat_xyzw), 1, axis=-1)


def xyzw_of(quat_wxyz: Float[ndarray, "... 4"]) -> Float[ndarray, "... 4"]:
    """Our quaternion order to that of ROS messages."""
    return np.roll(np.asarray(quat_wxyz), -1, axis=-1)


def quat_product(a: Float[ndarray, "... 4"], b: Float[ndarray, "... 4"]) -> Float[ndarray, "... 4"]:
    """Hamilton product: the rotation b, followed by a."""
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
    """Rotation matrix of a unit quaternion, from body to world vectors."""
    w, x, y, z = np.moveaxis(np.asarray(quat_wxyz), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    if np.ndim(w) == 0:  # in every tick of a flight: three times as fast as the general form
        return np.array(rows)
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
