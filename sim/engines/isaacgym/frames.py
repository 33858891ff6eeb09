"""Conversion between the conventions of MuJoCo and Isaac Gym. Runs on Python 3.7 with numpy alone.

MuJoCo: quaternions wxyz (body -> world); a free joint's speed is that of the body's frame, linear in the
world, angular in the body. Isaac Gym: quaternions xyzw; a root's 13 numbers are position, quaternion, linear
and angular velocity, both in the world, the linear one that of the centre of mass, as PhysX has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def wxyz(xyzw: Any) -> Any:
    """Quaternion xyzw (..., 4) -> wxyz (..., 4)."""
    return xyzw[..., [3, 0, 1, 2]]


def xyzw(wxyz: Any) -> Any:
    return wxyz[..., [1, 2, 3, 0]]


def rotate(quat: Any, vector: Any) -> Any:
    """v + 2 w (u x v) + 2 u x (u x v): body -> world for quat (..., 4) wxyz and vector (..., 3)."""
    w, u = quat[..., :1], quat[..., 1:]
    across = np.cross(u, vector)
    return vector + 2.0 * (w * across + np.cross(u, across))


def conjugate(quat: Any) -> Any:
    return quat * np.array([1.0, -1.0, -1.0, -1.0], quat.dtype)


def root_of_free(qpos: Any, qvel: Any, com_m: Any) -> Any:
    """qpos (k, 7), qvel (k, 6), centre of mass in the body (3,) -> root state (k, 13)."""
    quat = qpos[:, 3:7]
    spin = rotate(quat, qvel[:, 3:6])
    linear = qvel[:, :3] + np.cross(spin, rotate(quat, np.broadcast_to(com_m, (len(qpos), 3))))
    return np.concatenate([qpos[:, :3], xyzw(quat), linear, spin], axis=1)


def free_of_root(root: Any, com_m: Any) -> Any:
    """(k, 13) -> (qpos (k, 7), qvel (k, 6)), the inverse of `root_of_free`."""
    quat, spin = wxyz(root[:, 3:7]), root[:, 10:13]
    linear = root[:, 7:10] - np.cross(spin, rotate(quat, np.broadcast_to(com_m, (len(root), 3))))
    qpos = np.concatenate([root[:, :3], quat], axis=1)
    return qpos, np.concatenate([linear, rotate(conjugate(quat), spin)], axis=1)
