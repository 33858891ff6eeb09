"""Rotations for the fake robots, which share no code with what they test."""

from __future__ import annotations

import math

import numpy as np


def rotation(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rotation matrix by Rodrigues' formula."""
    x, y, z = axis
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + math.sin(angle) * k + (1 - math.cos(angle)) * k @ k


def quaternion(r: np.ndarray) -> list[float]:
    """wxyz, for turns of less than half a turn."""
    w = math.sqrt(max(1e-9, 1 + np.trace(r))) / 2
    return [w, (r[2, 1] - r[1, 2]) / (4 * w), (r[0, 2] - r[2, 0]) / (4 * w), (r[1, 0] - r[0, 1]) / (4 * w)]


def matrix(q: list[float]) -> np.ndarray:
    angle = 2 * math.acos(max(-1.0, min(1.0, q[0])))
    side = math.sqrt(max(1e-12, 1 - q[0] ** 2))
    return rotation(np.array(q[1:]) / side, angle) if side > 1e-5 else np.eye(3)
