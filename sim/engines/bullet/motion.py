"""Poses and velocities of drones in the PyBullet engine: columns are drones, double precision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float


class Motion(NamedTuple):
    """Motion of n drones, each relative to the origin of its arena, in the order of the `quad`
    engine's rows.
    """

    position_m: Float[ndarray, "3 n"]
    quat_wxyz: Float[ndarray, "4 n"]  # body -> world
    velocity_m_s: Float[ndarray, "3 n"]  # world
    rate_rad_s: Float[ndarray, "3 n"]  # body
    turn: Float[ndarray, "3 3 n"]  # the rotation matrix of the quaternion

    @classmethod
    def of(
        cls, position_m: ndarray, quat_wxyz: ndarray, velocity_m_s: ndarray, rate_rad_s: ndarray
    ) -> Motion:
        return cls(position_m, quat_wxyz, velocity_m_s, rate_rad_s, rotation(quat_wxyz))

    @classmethod
    def at_rest(
        cls, position_m: Float[ndarray, "3 n"], quat_wxyz: Float[ndarray, "4 n"] | None = None
    ) -> Motion:
        """At rest; level unless an attitude is given."""
        still = np.zeros_like(position_m)
        level = np.concatenate([np.ones_like(still[:1]), still])
        return cls.of(position_m, level if quat_wxyz is None else quat_wxyz, still, still)

    def columns(self, chosen: ndarray | slice) -> Motion:
        """Motion of some of the drones."""
        return Motion(*(rows[..., chosen] for rows in self))

    def rows(self) -> Float[ndarray, "13 n"]:
        """The first thirteen rows of the `quad` engine's state."""
        return np.concatenate(self[:4])


# R_ij = sum over k, l of FORM[i, j, k, l] q_k q_l with q = w x y z: w^2 + x^2 - y^2 - z^2, 2 (xy - wz), ...
_FORM: ndarray = np.zeros((3, 3, 4, 4))
for _i in range(3):
    _a, _b = (_i + 1) % 3, (_i + 2) % 3
    _FORM[_i, _i][np.diag_indices(4)] = -1.0
    _FORM[_i, _i, 0, 0] = _FORM[_i, _i, 1 + _i, 1 + _i] = 1.0
    _FORM[_i, _a, 1 + _i, 1 + _a] = _FORM[_a, _i, 1 + _i, 1 + _a] = 2.0
    _FORM[_i, _a, 0, 1 + _b], _FORM[_a, _i, 0, 1 + _b] = -2.0, 2.0
_FORM = _FORM.reshape(9, 16)


def rotation(quat_wxyz: Float[ndarray, "4 n"]) -> Float[ndarray, "3 3 n"]:
    """Rotation matrices of unit quaternions, body -> world, as a single product: for one drone the calls
    dominate.
    """
    num = quat_wxyz.shape[1]
    turn: ndarray = (_FORM @ (quat_wxyz[:, None] * quat_wxyz[None]).reshape(16, num)).reshape(3, 3, num)
    return turn


def to_body(turn: Float[ndarray, "3 3 n"], world: Float[ndarray, "3 n"]) -> Float[ndarray, "3 n"]:
    rows: ndarray = (turn * world[:, None]).sum(0)
    return rows


def to_world(turn: Float[ndarray, "3 3 n"], body: Float[ndarray, "3 n"]) -> Float[ndarray, "3 n"]:
    rows: ndarray = (turn * body[None]).sum(1)
    return rows


def euler_angles(quat_wxyz: Float[ndarray, "4 n"]) -> Float[ndarray, "3 n"]:
    """Roll, pitch, yaw: rotations about x, then y, then z of the world."""
    w, x, y, z = quat_wxyz
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2 * (w * y - x * z), -1.0, 1.0))
    return np.stack([roll, pitch, np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))])


def quaternion(euler_rad: Float[ndarray, "3 n"]) -> Float[ndarray, "4 n"]:
    """Inverse of `euler_angles`."""
    (cr, cp, cy), (sr, sp, sy) = np.cos(0.5 * euler_rad), np.sin(0.5 * euler_rad)
    return np.stack([
        cr * cp * cy + sr * sp * sy, sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy, cr * cp * sy - sr * sp * cy,
    ])  # fmt: skip
