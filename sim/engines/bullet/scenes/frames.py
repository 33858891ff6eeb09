"""Poses and velocities of free bodies in MuJoCo's and in Bullet's conventions.

MuJoCo: the body's own frame, quaternion wxyz, velocity of its origin in the world, angular velocity in its
own axes. Bullet: the frame of its centre of mass, quaternion xyzw, velocity of that centre and angular
velocity in the world.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

Move = tuple[Float[ndarray, "n 7"], Float[ndarray, "n 6"]]  # pose (position [m], quaternion wxyz) and speeds


def to_mujoco(base: Float[ndarray, "n 13"], inertial: Float[ndarray, " 7"]) -> Move:
    """From rows of Bullet's position, quaternion xyzw, speed and turn rate; `inertial` in the body's frame,
    wxyz.
    """
    centre, velocity, spin = base[:, :3], base[:, 7:10], base[:, 10:]
    quat = multiply(base[:, [6, 3, 4, 5]], conjugate(inertial[None, 3:]))
    arm = rotate(quat, inertial[None, :3])  # from the origin to the centre of mass
    origin = np.concatenate([centre - arm, quat], axis=1)
    return origin, np.concatenate([velocity - cross(spin, arm), rotate(conjugate(quat), spin)], axis=1)


def to_bullet(
    pose: Float[ndarray, " 7"], qvel: Float[ndarray, " 6"], inertial: Float[ndarray, " 7"]
) -> tuple[list[float], list[float]]:
    """Velocity of the centre of mass and angular velocity, both in the world, of one body."""
    quat = pose[None, 3:]
    spin = rotate(quat, qvel[None, 3:])
    velocity = qvel[None, :3] + cross(spin, rotate(quat, inertial[None, :3]))
    return velocity[0].tolist(), spin[0].tolist()


def multiply(a: Float[ndarray, "n 4"], b: Float[ndarray, "m 4"]) -> Float[ndarray, "n 4"]:
    aw, ax, ay, az = a.T
    bw, bx, by, bz = b.T
    product: Float[ndarray, "n 4"] = np.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        axis=1,
    )
    return product


def conjugate(quat: Float[ndarray, "n 4"]) -> Float[ndarray, "n 4"]:
    turned: Float[ndarray, "n 4"] = quat * np.array([1.0, -1.0, -1.0, -1.0])
    return turned


def rotate(quat: Float[ndarray, "n 4"], vector: Float[ndarray, "m 3"]) -> Float[ndarray, "n 3"]:
    """v + 2 w (u x v) + 2 u x (u x v), u the vector part of a unit quaternion."""
    w, u = quat[:, :1], quat[:, 1:]
    twice = 2.0 * cross(u, vector)
    turned: Float[ndarray, "n 3"] = vector + w * twice + cross(u, twice)
    return turned


def cross(a: Float[ndarray, "n 3"], b: Float[ndarray, "m 3"]) -> Float[ndarray, "n 3"]:
    """Cross product; NumPy's takes ten times as long on few rows."""
    product: Float[ndarray, "n 3"] = a[:, [1, 2, 0]] * b[:, [2, 0, 1]] - a[:, [2, 0, 1]] * b[:, [1, 2, 0]]
    return product
