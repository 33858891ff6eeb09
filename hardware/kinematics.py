"""Forward kinematics of an arm from its description, in NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float

Forward = Callable[[Float[ndarray, " j"]], Float[ndarray, "k 3"]]


def forward_kinematics(robot: RobotDescription) -> Forward:
    """Function that maps joint positions (j,) [rad] to points (j, 3) [m] in the base frame.

    The points are the origins of joints 2 to j, then the tool. Joint i rotates by its angle about its axis;
    its origin is at its offset in the frame of joint i-1. Raises ConfigError for a description without axes.
    """
    if any(joint.axis is None or joint.offset_m is None for joint in robot.joints):
        raise ConfigError(f"Robot '{robot.name}' has no kinematics: give axis and offset_m of every joint.")
    axes = np.array([joint.axis for joint in robot.joints], dtype=np.float64)
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    offsets = np.array([joint.offset_m for joint in robot.joints], dtype=np.float64)
    skews = np.stack([_skew(axis) for axis in axes])
    squares = skews @ skews
    tool = np.zeros(3) if robot.tool_m is None else np.asarray(robot.tool_m)

    def fk(position_rad: Float[ndarray, " j"]) -> Float[ndarray, "j 3"]:
        sin, cos = np.sin(position_rad)[:, None, None], np.cos(position_rad)[:, None, None]
        turns = np.eye(3) + sin * skews + (1.0 - cos) * squares  # Rodrigues
        points = np.empty((len(offsets), 3))
        place, turn = offsets[0], turns[0]
        for i in range(1, len(offsets)):
            place = points[i - 1] = place + turn @ offsets[i]
            turn = turn @ turns[i]
        points[-1] = place + turn @ tool
        return points

    return fk


def _skew(axis: Float[ndarray, " 3"]) -> Float[ndarray, "3 3"]:
    x, y, z = axis
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
