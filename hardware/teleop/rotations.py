"""Rotation vectors [rad] and rotation matrices (3, 3), one at a time, in NumPy."""

from __future__ import annotations

import math

import numpy as np
from numpy import ndarray

from robo_rl.core.flight.frames import rotation_of
from robo_rl.core.shapes import Float


def turn_of(vector_rad: Float[ndarray, " 3"]) -> Float[ndarray, "3 3"]:
    """exp of a rotation vector, by Rodrigues' formula."""
    angle = float(np.linalg.norm(vector_rad))
    if angle < 1e-12:
        return np.eye(3)
    half = 0.5 * angle
    axis = vector_rad / angle
    return rotation_of(np.array([math.cos(half), *(math.sin(half) * axis)]))


def vector_of(rotation: Float[ndarray, "3 3"]) -> Float[ndarray, " 3"]:
    """Rotation vector of a matrix, of an angle up to pi; by its quaternion (Shepperd 1978), exact near pi."""
    r = rotation
    squares = np.array([r.trace(), r[0, 0], r[1, 1], r[2, 2]])
    largest = int(squares.argmax())
    if largest == 0:
        quat = np.array([1.0 + r.trace(), r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]])
    else:
        i = largest - 1
        j, k = (i + 1) % 3, (i + 2) % 3
        quat = np.empty(4)
        quat[0], quat[1 + i] = r[k, j] - r[j, k], 1.0 + r[i, i] - r[j, j] - r[k, k]
        quat[1 + j], quat[1 + k] = r[j, i] + r[i, j], r[k, i] + r[i, k]
    quat = quat * math.copysign(1.0 / float(np.linalg.norm(quat)), quat[0])
    sine = float(np.linalg.norm(quat[1:]))
    if sine < 1e-12:
        return 2.0 * quat[1:]
    return 2.0 * math.atan2(sine, float(quat[0])) / sine * quat[1:]
